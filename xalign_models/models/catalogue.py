"""The registered models as data: backbones times alignments."""

import dataclasses
from functools import lru_cache

from xalign_models import plugins
from xalign_models.backbones.inputs import ENGLISH, TEMPLATES
from xalign_models.errors import ModelError
from xalign_models.plugins import BACKBONES, register
from xalign_models.specs import AlignmentSpec, BackboneSpec, Dtype, ModelSpec, Pooling, Precision

_E5_PROMPTS = (("default", "query: "), ("query", "query: "), ("document", "passage: "))
_E5_SMALL = BackboneSpec(
    "multilingual-e5-small-q4",
    "multilingual-e5-small-q4",
    prompts=_E5_PROMPTS,
    mteb_name="intfloat/multilingual-e5-small",
)

MODES: dict[str, tuple[tuple[str, str], ...]] = {
    "self-prompts": tuple(TEMPLATES.items()),
    "en-prompts": (("default", ENGLISH),),
    "last-token": (),
}
"""PromptEOL's prompts for a language model: the template in the text's language, the English template, or none."""


def modes_of(
    name: str, model: str, revision: str | None = "main", dtype: Dtype = Dtype.BFLOAT16
) -> tuple[BackboneSpec, ...]:
    """A causal language model as three backbones, one per mode of :data:`MODES`, by default in bfloat16."""
    return tuple(
        BackboneSpec(
            f"{name}-{mode}", model, revision, pooling=Pooling.LAST, max_tokens=512, dtype=dtype, prompts=prompts
        )
        for mode, prompts in MODES.items()
    )


_LANGUAGE_MODELS = {
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-2-13b": "meta-llama/Llama-2-13b-hf",
    "tower-7b": "Unbabel/TowerBase-7B-v0.1",
    "tower-13b": "Unbabel/TowerBase-13B-v0.1",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    **{f"qwen3-{size}": f"Qwen/Qwen3-{size.upper()}-Base" for size in ("0.6b", "1.7b", "4b", "8b")},
    **{f"qwen3-embedding-{size}": f"Qwen/Qwen3-Embedding-{size.upper()}" for size in ("0.6b", "4b", "8b")},
}

for _spec in (
    _E5_SMALL,
    dataclasses.replace(_E5_SMALL, name="multilingual-e5-small-q4-layer6", layer=6),
    dataclasses.replace(_E5_SMALL, name="multilingual-e5-small-q4-int8", precision=Precision.INT8),
    dataclasses.replace(_E5_SMALL, name="multilingual-e5-small", model="intfloat/multilingual-e5-small",
                        revision="main"),
    BackboneSpec("all-MiniLM-L6-v2", "all-minilm-l6-v2", mteb_name="sentence-transformers/all-MiniLM-L6-v2"),
    BackboneSpec("use-multilingual-v3", "use-multilingual-v3"),
    BackboneSpec("smollm2-135m-q4", "smollm2-135m-q4", pooling=Pooling.MEAN, max_tokens=512, dtype=Dtype.BFLOAT16),
    BackboneSpec("gemma-3-270m-q4", "gemma-3-270m-q4", pooling=Pooling.MEAN, max_tokens=512, dtype=Dtype.BFLOAT16),
    *(mode for name in ("smollm2-135m-q4", "gemma-3-270m-q4") for mode in modes_of(name, name, None)),
    BackboneSpec("multilingual-e5-base", "intfloat/multilingual-e5-base", "main", prompts=_E5_PROMPTS,
                 mteb_name="intfloat/multilingual-e5-base"),
    BackboneSpec("multilingual-e5-large", "intfloat/multilingual-e5-large", "main", prompts=_E5_PROMPTS,
                 mteb_name="intfloat/multilingual-e5-large"),
    BackboneSpec("LaBSE", "sentence-transformers/LaBSE", "main", mteb_name="sentence-transformers/LaBSE"),
    BackboneSpec("paraphrase-multilingual-mpnet-base-v2",
                 "sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "main",
                 mteb_name="sentence-transformers/paraphrase-multilingual-mpnet-base-v2"),
    BackboneSpec("bge-m3", "BAAI/bge-m3", "main", mteb_name="BAAI/bge-m3"),
    # As in the LSAR paper: mean over all tokens, 512 tokens, a middle layer.
    BackboneSpec("mbert-layer8", "google-bert/bert-base-multilingual-cased", "main", 8, Pooling.MEAN,
                 max_tokens=512),
    BackboneSpec("xlm-100-layer8", "FacebookAI/xlm-mlm-100-1280", "main", 8, Pooling.MEAN, max_tokens=512),
    # The paper's code takes layer 8 of the last twelve of sixteen layers: the output of the twelfth.
    BackboneSpec("xlm-100-layer12", "FacebookAI/xlm-mlm-100-1280", "main", 12, Pooling.MEAN, max_tokens=512),
    BackboneSpec("xlm-roberta-large-layer11", "FacebookAI/xlm-roberta-large", "main", 11, Pooling.MEAN,
                 max_tokens=512),
    *(mode for name, model in _LANGUAGE_MODELS.items() for mode in modes_of(name, model)),
):  # fmt: skip
    register.backbone(_spec)

LUSIFER = (
    BackboneSpec("xlm-roberta-large__mistral-7b", "FacebookAI/xlm-roberta-large", "main", max_tokens=512,
                 dtype=Dtype.BFLOAT16, tuned="lusifer", llm="mistralai/Mistral-7B-v0.1"),
    BackboneSpec("multilingual-e5-small-q4__smollm2-135m-q4", "multilingual-e5-small-q4", max_tokens=512,
                 dtype=Dtype.BFLOAT16, tuned="lusifer", llm="smollm2-135m-q4"),
)  # fmt: skip
"""Models for `xalign train lusifer`, the paper's and a small one, named after their encoder until trained."""

CITATIONS = {
    "affine": "Vasilyev, Isono, Bohannon (2023): Linear Cross-Lingual Mapping of Sentence Embeddings",
    "centered": "Libovický, Rosa, Fraser (2020): On the Language Neutrality of Pre-trained Multilingual "
    "Representations",
    "langsae": "Kim, Yoon, Park, Lim (2026): LangSAE Editing: Improving Multilingual Information Retrieval via "
    "Post-hoc Language Identity Removal",
    "leace": "Belrose, Schneider-Joseph, Ravfogel, Cotterell, Raff, Biderman (2023): LEACE: Perfect linear concept "
    "erasure in closed form",
    "lir": "Yang, Yang, Cer, Darve (2021): A Simple and Effective Method To Eliminate the Self Language Bias in "
    "Multilingual Representations",
    "lowrank": "Vejendla (2025): Drift-Adapter: A Practical Approach to Near Zero-Downtime Embedding Model Upgrades "
    "in Vector Databases",
    "lsar": "Xie, Zhao, Yu, Li (2022): Discovering Low-rank Subspaces for Language-agnostic Multilingual "
    "Representations",
    "minivec2vec": "Dar (2025): mini-vec2vec: Scaling Universal Geometry Alignment with Linear Transformations",
    "procrustes": "Representational Isomorphism and Alignment of Multilingual Large Language Models",
    "residual": "Vejendla (2025): Drift-Adapter: A Practical Approach to Near Zero-Downtime Embedding Model Upgrades "
    "in Vector Databases",
    "shift": "Jang, Hong, Moon, Lim (2026): Shift: Semantic Harmonization via Index-side Feature Transformation for "
    "Multilingual Information Retrieval",
}
"""Method -> its paper."""
UNPAIRED = ("ntrex", "lingua", "tatoeba_pairs")
"""Text for means and directions of each language; several sorts, as a language's offset depends on the domain."""
LANGUAGES = tuple(
    """afr-Latn arb-Arab ben-Beng bul-Cyrl deu-Latn ell-Grek eng-Latn est-Latn eus-Latn fin-Latn fra-Latn heb-Hebr
    hin-Deva hun-Latn ind-Latn ita-Latn jav-Latn jpn-Jpan kat-Geor kaz-Cyrl kor-Hang mal-Mlym mar-Deva nld-Latn pes-Arab
    por-Latn rus-Cyrl spa-Latn swh-Latn tam-Taml tel-Telu tgl-Latn tha-Thai tur-Latn urd-Arab vie-Latn zho-Hans
    zsm-Latn""".split()
)
"""The languages of the default runs: those of Tatoeba-36, and Malay."""
_FITTED = tuple(code for code in LANGUAGES if code != "jav-Latn")  # no corpus has Javanese
PARALLEL = ("ntrex",)
"""Text for maps onto English, and for LSAR, whose means differ by the language alone where rows are translations."""
_METHODS = {
    "centered": AlignmentSpec("centered", "centered", (), UNPAIRED, 1000, _FITTED),
    "lir-1": AlignmentSpec("lir-1", "lir", (("k", 1),), UNPAIRED, 1000, _FITTED),
    "lir-15": AlignmentSpec("lir-15", "lir", (("k", 15),), UNPAIRED, 1000, _FITTED),
    "lsar": AlignmentSpec("lsar", "lsar", (), PARALLEL, 1000, _FITTED),
    "leace": AlignmentSpec("leace", "leace", (), PARALLEL, 1000, _FITTED),
    "shift": AlignmentSpec("shift", "shift", (), UNPAIRED, 1000, _FITTED),
    "procrustes": AlignmentSpec("procrustes", "procrustes", (), PARALLEL, 1000, _FITTED),
    "procrustes-shrunk": AlignmentSpec("procrustes-shrunk", "procrustes", (("shrink", 1.0),), PARALLEL, 1000, _FITTED),
    "affine": AlignmentSpec("affine", "affine", (), PARALLEL, 1000, _FITTED),
}


def fits() -> dict[str, dict[str, AlignmentSpec]]:
    """Fit data (the last part of a model's name) -> label -> alignment; ``gettext`` is the fit half of this corpus."""
    methods, registered = dict(_METHODS), {spec.method for spec in _METHODS.values()}
    for method in plugins.ALIGNMENTS:
        if method not in registered:
            like = "procrustes" if plugins.ALIGNMENTS.facts(method)["parallel"] else "centered"
            methods[method] = dataclasses.replace(_METHODS[like], label=method, method=method)
    embedded = {
        label: dataclasses.replace(spec, corpora=("gettext:fit",), limit=None, languages=None)
        for label, spec in methods.items()
    }
    return {"": methods, "gettext": embedded}


def specs() -> dict[str, ModelSpec]:
    """Every registered model by name: each backbone plain and with each alignment on each fit data, and LUSIFER."""
    fitted = [(alignment, data) for data, methods in fits().items() for alignment in methods.values()]
    return dict(_specs(tuple(spec for _, spec in BACKBONES.items()), tuple(fitted)))


@lru_cache(maxsize=1)  # mteb asks for the revision of each model
def _specs(backbones: tuple[BackboneSpec, ...], fitted: tuple[tuple[AlignmentSpec, str], ...]) -> dict[str, ModelSpec]:
    models = [ModelSpec(backbone) for backbone in (*backbones, *LUSIFER)]
    models += [ModelSpec(backbone, *fit) for backbone in backbones for fit in fitted]
    return {spec.name: spec for spec in models}


def find_registered(name: str) -> ModelSpec | None:
    """The spec of a registered name, or of registered alignments joined by ``+``; None for others.

    ``xalign/centered+affine__use-multilingual-v3`` is fitted on the text of its first method that uses translations,
    if any.
    """
    registered = specs()
    if name in registered:
        return registered[name]
    labels, _, rest = name.removeprefix("xalign/").partition("__")
    stages = [registered.get(f"xalign/{label}__{rest}") for label in labels.split("+")]
    alignments = [spec.alignment for spec in stages if spec is not None and spec.alignment is not None]
    params = [parameter for alignment in alignments for parameter in alignment.params]
    if len(alignments) < len(stages) or len(dict(params)) < len(params):  # two values of one parameter
        return None
    text = next((spec for spec in alignments if plugins.ALIGNMENTS.facts(spec.method)["parallel"]), alignments[0])
    method = "+".join(alignment.method for alignment in alignments)
    joined = dataclasses.replace(text, label=labels, method=method, params=tuple(params))
    return dataclasses.replace(stages[0], alignment=joined) if stages[0] else None


def get_spec(name: str) -> ModelSpec:
    """The spec of a model as in :func:`find_registered`, with or without the prefix ``xalign/``.

    Raises:
        ModelError: The model is unknown; the message suggests the most similar name.
    """
    full = name if name.startswith("xalign/") else f"xalign/{name}"
    if spec := find_registered(full):
        return spec
    aligned = "__" in name or name.partition("_")[0] in {"plain", *plugins.ALIGNMENTS}
    known = specs() if aligned else plugins.BACKBONES
    near = plugins.did_you_mean(full if aligned else name, known, cutoff=0.4)
    raise ModelError(f"Unknown model {name!r}.{near} `xalign models` lists them; a directory or hub id works too.")
