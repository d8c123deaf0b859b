"""The Python API to fit alignments and to pass models to mteb. The command line is a thin layer over it."""

import copy
import dataclasses
import hashlib
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mteb.models.model_meta import ModelMeta, ScoringFunction
from sentence_transformers import SentenceTransformer

from xalign_models import alignments, corpora
from xalign_models.alignments.module import Aligned
from xalign_models.backbones.router import all_modules
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.device import pick_device
from xalign_models.errors import AlignmentError, DataError, LanguageError, ModelError
from xalign_models.languages import canonical, canonical_codes
from xalign_models.models import catalogue, fitting
from xalign_models.models.building import build, encoder_of, load_encoder, open_recipe
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.labelled import is_task, labelled
from xalign_models.models.metadata import meta_of
from xalign_models.models.names import Located, find_spec, label_of, slug
from xalign_models.models.recipe import prompt_names
from xalign_models.plugins import MODULES, code_digest
from xalign_models.recommend import judging
from xalign_models.recommend.candidates import Candidate, candidates
from xalign_models.recommend.card import CardRow
from xalign_models.recommend.judging import Recommendation
from xalign_models.specs import AlignmentSpec, ModelSpec, Unknown, digest
from xalign_models.store import open_store

logger = logging.getLogger(__name__)


def fit(
    method: str,
    *,
    backbone: str | Path,
    corpus: str | Sequence[str] | None = None,
    languages: Collection[str] | None = None,
    limit: int | None = None,
    label: str | None = None,
    device: str | None = None,
    default_lang: str | None = None,
    unknown: Unknown = "related",
    prompts: str | Sequence[str] | None = None,
    judge: str | Sequence[str] | None = None,
    use: str = "retrieval",
    overrides: Mapping[str, Any] | None = None,
    **params: Any,
) -> SentenceTransformer:
    """Fit an alignment to a backbone.

    Args:
        method: A registered alignment, e.g. ``lsar``; ``auto`` fits the recommendation of ``recommend``, if any.
        backbone: A registered backbone, a directory or a hub id.
        corpus: Names of corpora, e.g. ``ntrex`` or ``own:DIR``; by default the text and the number of rows of the
            model registered with this method.
        languages: Codes to fit, as a list or separated by commas; by default all languages of the text. English is
            added if the text has it, because it is the other side of translations.
        limit: Rows per language and corpus; None for all.
        label: First part of the model's name; by default the method and its parameters' values.
        device: cpu, cuda or mps; by default the best available.
        default_lang: Language of texts without a language, or ``auto``.
        unknown: Treatment of texts in languages that were not fitted: ``related``, ``mean``, ``unaligned`` or
            ``error``; see :class:`~xalign_models.alignments.module.Aligned`.
        prompts: Names of the backbone's prompts to fit, e.g. ``query`` and ``passage``; by default all. The first one
            is the prompt of texts without one.
        judge: Names of other corpora and of tasks on which ``auto`` compares the candidates.
        use: Kind of use that ``auto`` must not harm besides retrieval and similarity, e.g. ``classification``.
        overrides: Fields of the backbone's spec, e.g. ``{"layer": 6}``.
        **params: The method's hyperparameters.

    Returns:
        The model, with its spec in ``xalign_spec`` and, of ``auto``, the do-no-harm card in ``xalign_claims``;
        ``xalign_models.save`` writes both.

    Raises:
        ModelError: The backbone is unknown or aligned already, it lacks a prompt, or the label is invalid.
        AlignmentError: The method or a parameter is unknown, the limit is below 1, or the method cannot be fitted on
            the text.
        DataError: The corpus is not a name, or empty.
        XAlignError: Weights or fit text are missing.

    Examples:
        The folder ``parallel`` contains ``deu.txt``, ``eng.txt`` and ``fra.txt``, each with one sentence per line.

        >>> import xalign_models
        >>> model = xalign_models.fit("lsar", backbone="all-MiniLM-L6-v2", corpus="own:parallel", device="cpu")
        >>> model.encode(["Good morning", "Guten Morgen"]).shape == (2, model.get_embedding_dimension())
        True
    """
    card: Sequence[CardRow] = ()
    names = _names(corpus)
    common: dict[str, Any] = {"backbone": backbone, "languages": languages, "overrides": overrides}
    common["corpus"] = names or None
    if method == "auto":
        if params or not names:
            raise AlignmentError("auto chooses its own parameters and needs the name of a text: add --corpus ntrex.")
        common["corpus"] = _comparable(names)
        recommendation = recommend(**common, limit=limit or 1000, device=device, judge=judge, use=use, prompts=prompts)
        logger.log(logging.INFO if recommendation.chosen.method else logging.WARNING, "%s", recommendation.reason)
        if not recommendation.chosen.method:
            given = {"--label": label, "--default-lang": default_lang, "--prompts": prompts}
            if idle := [name for name, value in (given | {"--unknown": unknown != "related"}).items() if value]:
                logger.warning("%s: no effect, as the model has no alignment.", ", ".join(idle))
            return build(find_spec(backbone, **(overrides or {})), device=device)
        method, params = recommendation.chosen.method, dict(recommendation.chosen.params)
        card = recommendation.card
    elif judge:
        raise AlignmentError(f"--judge applies to the method auto only, not to {method}; leave it out.")
    spec = aligned_spec(method, **common, limit=limit, label=label, **params)
    if prompts and not label:
        spec = dataclasses.replace(spec, data=slug("-".join(filter(None, [spec.data, *prompt_names(prompts)]))))
    model = build(spec, device=device, prompts=prompts)
    set_language_handling(model, default_lang, unknown)
    if card:
        model.xalign_claims = {"card": [row.cells() for row in card]}
    return model


def recommend(
    *,
    backbone: str | Path,
    corpus: str | Sequence[str],
    languages: Collection[str] | None = None,
    pivot: str = "eng-Latn",
    limit: int | None = 1000,
    device: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 0,
    judge: str | Sequence[str] | None = None,
    use: str = "retrieval",
    prompts: str | Sequence[str] | None = None,
    tried: Sequence[Candidate] | None = None,
) -> Recommendation:
    """Recommend an alignment for a backbone, by scores on held-out rows of text; see :mod:`xalign_models.recommend`.

    Args:
        backbone: A registered backbone, a directory or a hub id.
        corpus: Names of corpora. If any has translations, text without them is left out; centring is the only
            candidate if no corpus has translations.
        languages: Codes; by default all languages of the text.
        pivot: Language that the other languages are paired with.
        limit: Rows per language and corpus; None for all.
        device: cpu, cuda or mps; by default the best available.
        overrides: Fields of the backbone's spec, e.g. ``{"layer": 6}``.
        seed: Seed of the folds.
        judge: Names of other corpora with translations, on which the candidates are compared in their common
            languages (by default, folds of the text itself), and of labelled tasks, which replace the proxies of their
            kind. Text without translations may have one labelled task, which then judges all methods without pairs.
        use: Kind of use whose losses exclude an alignment, besides retrieval and similarity.
        prompts: Names of the backbone's prompts to fit; by default those of queries and documents.
        tried: The candidates, for text with translations; by default those of :mod:`xalign_models.recommend`.

    Raises:
        ModelError: The backbone lacks a prompt.
        XAlignError: Weights or text are missing, or the text is too short.
    """
    pivot = canonical(pivot)
    names, others = _comparable(_names(corpus)), [judge] if isinstance(judge, str) else list(judge or ())
    paired = corpora.load(names[0]).kind != "monolingual"
    tasks = [name for name in others if is_task(name)]
    others = [name for name in others if name not in tasks]
    if not paired and (others or len(tasks) > 1):
        raise DataError("Text without translations can only be judged on itself or on one labelled task: --judge TASK.")
    known = [corpora.load(name).languages for name in others]  # raises for an absent text before anything is encoded

    text: dict[str, Any] = {"backbone": backbone, "corpus": names, "limit": limit, "overrides": overrides}
    method = "procrustes" if paired else "centered"
    params: dict[str, Any] = {"pivot": pivot} if paired else {}
    spec = aligned_spec(method, languages=languages, label="recommend", **text, **params)
    recipe = open_recipe(spec, device, prompts=prompts)
    roles = recipe.role_prompts()
    if not paired and not tasks:
        return judging.recommend_centring(recipe.fit_vectors(), seed)

    def encoder(candidate: Candidate) -> XAlignEncoder:
        wanted = ModelSpec(spec.backbone)
        if candidate.method:
            wanted = aligned_spec(candidate.method, languages=spoken, **text, **candidate.onto(pivot))
        return load_encoder(wanted, device=device, store=open_store())

    if not paired:
        spoken = list(recipe.languages or ())
        unpaired = [
            candidate for candidate in candidates(len(spoken)) if not alignments.find_method(candidate.method).parallel
        ]
        return judging.recommend_labelled(labelled(tasks[0], spoken, encoder), unpaired)
    data = [recipe.fit_vectors(prompt=prompt) for prompt in roles]
    spoken = [pivot, *data[0]]
    judged: list[Any] = []
    if others:
        common = set().union(*known) & data[0].keys()
        if not common:
            raise LanguageError(
                f"The text to judge on, {', '.join(others)}, has no {', '.join(data[0])}; name another with --judge."
            )
        codes = tuple(sorted(common))
        other = AlignmentSpec("recommend", method, tuple(params.items()), tuple(others), limit, codes)
        judged = [recipe.fit_vectors(other, prompt) for prompt in roles]

    return judging.recommend(
        data[0],
        pivot,
        tried=tried,
        seed=seed,
        judge=judged[0] if judged else None,
        documents=data[1] if len(roles) > 1 else None,
        judge_documents=judged[1] if len(judged) > 1 else None,
        use=use,
        labelled=[labelled(name, spoken, encoder) for name in tasks],
    )


def _names(corpus: str | Sequence[str] | None) -> tuple[str, ...]:
    names = (corpus,) if isinstance(corpus, str) else () if corpus is None else corpus
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"corpus= takes names of texts, such as ntrex, not a {type(corpus).__name__}; write your "
            "own text to a file and name it own:FILE."
        )
    if corpus is not None and not (names and all(name.strip() for name in names)):
        raise DataError("--corpus is empty; name a text, such as ntrex.")
    return tuple(names)


def _comparable(names: Sequence[str]) -> Sequence[str]:
    """The corpora with translations, on which all methods can be compared; all corpora if none has them."""
    paired = [name for name in names if corpora.load(name).kind != "monolingual"]
    if paired and len(paired) < len(names):
        rest = ", ".join(name for name in names if name not in paired)
        logger.warning("%s: left out, because text without translations cannot compare methods.", rest)
    return paired or names


def harm_card(spec: ModelSpec, *, backbone: str, **options: Any) -> tuple[CardRow, ...]:
    """The do-no-harm card of an alignment, judged on held-out rows of its own fit text.

    Empty if the text lacks translations or is too short to judge. ``options`` are those of :func:`recommend`.
    """
    fitted = spec.alignment
    if fitted is None or any(corpora.load(name).kind == "monolingual" for name in fitted.corpora):
        return ()
    candidate = Candidate(fitted.method, fitted.params)
    pivot = str(dict(fitted.params).get("pivot", corpora.ENGLISH))
    text: dict[str, Any] = {"corpus": fitted.corpora, "languages": fitted.languages, "limit": fitted.limit}
    try:
        found = recommend(backbone=backbone, pivot=pivot, tried=[candidate], **text, **options)
    except (AlignmentError, DataError, LanguageError) as error:
        logger.warning("The model has no do-no-harm card: %s", error)
        return ()
    return found.verdicts[1].card


def aligned_spec(
    method: str,
    *,
    backbone: str | Path,
    corpus: str | Sequence[str] | None = None,
    languages: Collection[str] | None = None,
    limit: int | None = None,
    label: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **params: Any,
) -> ModelSpec:
    """The spec of the model that :func:`fit` makes, with a unique name unless a label sets it.

    Raises:
        ModelError: The backbone is unknown or aligned already, or the label is invalid.
        AlignmentError: The method or a parameter is unknown, or the limit is below 1.
    """
    alignments.make(method, **params)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise AlignmentError(f"limit={limit!r}: give 1 or more rows, or None for all.")
    if label is not None and not re.fullmatch(r"(?!.*__)[\w.-]+", label):
        raise ModelError(f"--label {label!r}: use letters, digits, '.', '-' and single '_' only.")
    base = find_spec(backbone, **(overrides or {}))
    if base.alignment:
        raise ModelError(f"--backbone {backbone} is aligned already; give its backbone, {base.backbone.name}.")
    corpora = _names(corpus)
    if not corpora:
        default = next((spec for spec in catalogue.fits()[""].values() if spec.method == method), None)
        if default is None:
            raise AlignmentError(f"{method} has no default text; name a corpus, e.g. --corpus ntrex.")
        corpora, limit = default.corpora, limit or default.limit
        languages = languages or default.languages
    codes = None if languages is None else tuple(sorted({*canonical_codes(languages)}))
    alignment = AlignmentSpec(label or label_of(method, params), method, tuple(params.items()), corpora, limit, codes)
    if codes and not alignments.find_method(method).parallel and fitting.has_pivot(alignment):
        codes = tuple(sorted({*codes, fitting.pivot_of(alignment)}))
        alignment = dataclasses.replace(alignment, languages=codes)
    spec = ModelSpec(base.backbone, alignment)
    registered = catalogue.specs().get(spec.name)
    if registered is not None and registered.alignment == alignment:
        return spec
    text = "-".join(Path(name.partition(":")[2]).name or name if name.startswith("own") else name for name in corpora)
    unique = "" if label else f"-{fitting.fingerprint(alignment)[:6]}"  # the user is responsible for a label
    return dataclasses.replace(spec, data=f"{slug(text)}{unique}")


def set_language_handling(model: SentenceTransformer, default_lang: str | None, unknown: Unknown) -> None:
    """Set ``default_lang`` and ``unknown`` in a model's modules, which save them; see :meth:`Aligned.set_handling`."""
    code = default_lang if default_lang in {None, "auto"} else canonical(str(default_lang))
    for module in model:
        if isinstance(module, Aligned):
            module.set_handling(code, unknown)
        elif hasattr(module, "default_lang"):
            module.default_lang = code


def as_mteb(model: str | Path | SentenceTransformer | XAlignEncoder, *, device: str | None = None) -> XAlignEncoder:
    """A model as an mteb encoder, which passes the language of each text to the alignment.

    Args:
        model: A name, a directory, a hub id, an encoder, or a SentenceTransformer, which keeps its modules.
        device: cpu, cuda or mps; by default the best available, or that of the SentenceTransformer.

    Raises:
        ModelError: The model is unknown.
        XAlignError: Weights or fit text are missing.

    Examples:
        >>> import xalign_models
        >>> encoder = xalign_models.as_mteb("all-MiniLM-L6-v2", device="cpu")
        >>> encoder.mteb_model_meta.name
        'xalign/plain__all-MiniLM-L6-v2'
        >>> encoder.encode_texts(["Good morning", "Guten Morgen"], ["eng-Latn", "deu-Latn"]).shape[0]
        2
    """
    if not isinstance(model, SentenceTransformer):
        return model if isinstance(model, XAlignEncoder) else load_encoder(model, device=device)
    identity = _identity(model)
    spec = getattr(model, "xalign_spec", None)
    if spec is not None:
        meta = meta_of(Located(spec))
        if model.tuned or model.xalign_claims.get("tuned"):
            meta = meta.model_copy(update={"name": f"{meta.name}-tuned", "training_datasets": None})
    else:
        fields = {"name": f"local/model-{identity[:6]}", "similarity_fn_name": ScoringFunction.COSINE}
        meta = ModelMeta.create_empty(fields)
    longest = getattr(model, "max_seq_length", None)
    facts = {
        "embed_dim": model.get_embedding_dimension(),
        "max_tokens": longest if isinstance(longest, int) else None,  # static models have infinity
        "n_parameters": sum(weight.numel() for weight in model.parameters()) or None,
    }
    unknown = {name: value for name, value in facts.items() if getattr(meta, name) is None}
    meta = meta.model_copy(update={"revision": identity, **unknown})
    place = pick_device(device or str(model.device))
    firsts = [module for module in all_modules(model) if isinstance(module, LanguageTransformer)]
    if firsts and place == str(model.device) and not any(module.compiled or module.graph for module in firsts):
        # Packing changes settings of the model and its tokenizer, which other threads may use: only weights are shared.
        model = copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})
    return encoder_of(model, identity, meta, place)


def _identity(model: SentenceTransformer) -> str:
    """40 hex digits of a model's modules, settings, weights, tokenizer and prompts, which determine its vectors."""
    cut = [model.truncate_dim] if model.truncate_dim else []
    content = hashlib.sha256(digest(model.prompts, model.default_prompt_name, model.max_seq_length, *cut).encode())
    for module in all_modules(model):
        settings = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
        config = getattr(getattr(module, "auto_model", None), "config", None)
        code = [code_digest(type(module))] if type(module) in MODULES.values() else []
        code += [_identity(part) for part in module.children() if isinstance(part, SentenceTransformer)]
        content.update(digest(type(module).__qualname__, settings, config.to_dict() if config else {}, *code).encode())
        tokenizer: Any = getattr(module, "tokenizer", None)
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if hasattr(backend, "to_str"):
            content.update(backend.to_str().encode())
        elif hasattr(tokenizer, "get_vocab"):
            content.update(digest(tokenizer.get_vocab()).encode())
        for name, tensor in sorted(module.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            content.update(f"{name}{tuple(values.shape)}{values.dtype}".encode())
            content.update(values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    return content.hexdigest()[:40]
