"""A SentenceTransformer with a spec, which every way of saving writes next to the weights."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.decorators import deprecated_kwargs

from xalign_models.backbones.checkpoint import quiet
from xalign_models.backbones.inputs import code_of, require_texts
from xalign_models.backbones.loading import prompts_by_language
from xalign_models.backbones.pointer import Pointer
from xalign_models.errors import LanguageError, ModelError
from xalign_models.models.provenance import split, write_card
from xalign_models.models.ready import Bridge
from xalign_models.specs import ModelSpec


class AlignedSentenceTransformer(SentenceTransformer):
    """sentence-transformers' own class with provenance: every way of saving keeps the card.

    Attributes:
        xalign_spec: The backbone and the alignment; None for a directory without a card.
        xalign_claims: The card's other claims, e.g. the record of the training.
        xalign_weights: A sample of the backbone's weights as loaded, to detect training.
    """

    xalign_spec: ModelSpec | None
    xalign_claims: Mapping[str, Any]
    xalign_weights: Sequence[torch.Tensor]

    @classmethod
    def adopt(
        cls,
        model: SentenceTransformer,
        spec: ModelSpec | None,
        claims: Mapping[str, Any] | None = None,
        weights: Sequence[torch.Tensor] | None = None,
    ) -> Self:
        """Turn a model into this class, in place, without loading anything; a copy gets the original's ``weights``."""
        model.__class__ = cls
        model.xalign_spec, model.xalign_claims = spec, dict(claims or {})
        model.xalign_weights = _sampled(model) if weights is None else weights
        return cast(Self, model)

    @property
    def tuned(self) -> bool:
        """Whether the backbone's weights have changed since they were loaded, apart from their type."""
        now = _sampled(self)
        return len(now) != len(self.xalign_weights) or not all(
            torch.equal(before.to(after.dtype), after) for before, after in zip(self.xalign_weights, now, strict=True)
        )

    def get_model_kwargs(self) -> list[str]:
        """Keyword arguments of ``encode``: those of the modules, and ``lang``, which prompts by language need too."""
        return [*{*super().get_model_kwargs(), "lang"}]

    @deprecated_kwargs(sentences="inputs")  # type: ignore[untyped-decorator]
    def encode(self, inputs: Any, *args: Any, lang: str | Sequence[str | None] | None = None, **kwargs: Any) -> Any:
        """Encode as sentence-transformers does; ``lang`` is the language of all texts, or a list of one per text.

        Raises:
            DataError: A text is None, a number or bytes.
            LanguageError: The list has another length than the texts, or a language is missing or was not fitted.
            ModelError: A named prompt would replace prompts by language.
        """
        name = args[0] if args else kwargs.get("prompt_name")
        own = prompts_by_language(self.prompts)
        if own and name not in own and kwargs.get("prompt") is None and self.prompts.get(name):
            raise ModelError(
                f"The prompt {name!r} would replace those of {', '.join(sorted(own))}. Call encode with lang=, which "
                f"puts each language's prompt before its texts; prompt=model.prompts[{name!r}] puts one before all."
            )
        if hasattr(inputs, "to_list") or isinstance(inputs, Iterator):  # a column of a table, a generator
            inputs = list(inputs)
        single = self.is_singular_input(inputs)
        require_texts([inputs] if single else inputs)
        found = any(getattr(module, "default_lang", None) == "auto" for module in self)
        default = {"lang": "auto"} if found else {}  # some first modules have no default of their own
        if not (lang is None or hasattr(lang, "__getitem__")):  # an iterator; or a set, which has no order
            lang = list(lang) if isinstance(lang, Iterator) else code_of(lang)
        if lang is None or isinstance(lang, str):
            return super().encode(inputs, *args, **({"lang": lang} if lang else default), **kwargs)
        if single or len(inputs) != len(lang):
            raise LanguageError(f"lang= takes one code, or one for each text of a list, not {len(lang)}.")
        rows = [
            {**row, "lang": code_of(row.get("lang")) or code} if code and isinstance(row, dict) else row
            for row, code in zip(map(_as_row, inputs), map(code_of, lang), strict=True)
        ]
        return super().encode(rows, *args, **default, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights; those of a checkpoint, which has the backbone's modules, also into a reference to it."""
        first, *others = self
        if isinstance(first, Pointer) and not any(name.startswith("0.inner.") for name in state_dict):
            return torch.nn.Sequential(*first.inner, *others).load_state_dict(state_dict, *args, **kwargs)
        return super().load_state_dict(state_dict, *args, **kwargs)

    def save(self, path: str, *args: Any, create_model_card: bool = True, **kwargs: Any) -> None:
        """Write the directory as sentence-transformers does, with xalign's README and ``xalign.json``.

        ``save_pretrained`` and ``push_to_hub`` call this method.
        """
        model = whole(self)
        SentenceTransformer.save(model, path, *args, create_model_card=False, **kwargs)
        write_card(model, Path(path), readme=create_model_card)


def copied(
    model: AlignedSentenceTransformer, modules: list[Any], prompts: dict[str, str] | None = None
) -> AlignedSentenceTransformer:
    """The model with other modules and, if given, other prompts, the default one first."""
    default = next(iter(prompts)) if prompts and prompts != model.prompts else model.default_prompt_name
    with quiet():
        other = SentenceTransformer(
            modules=modules,
            prompts=model.prompts if prompts is None else prompts,
            default_prompt_name=default,
            similarity_fn_name=model.similarity_fn_name,
            truncate_dim=model.truncate_dim,
            device=str(model.device),
        )
    return AlignedSentenceTransformer.adopt(other, model.xalign_spec, model.xalign_claims, model.xalign_weights)


def whole(model: AlignedSentenceTransformer) -> AlignedSentenceTransformer:
    """The model; if its backbone's weights have changed, with the backbone instead of a reference to it."""
    first, *others = model
    if isinstance(first, Bridge):
        first.save("")  # refuses before a folder is made
    return copied(model, [*first.inner, *others]) if isinstance(first, Pointer) and model.tuned else model


def _as_row(text: Any) -> Any:
    return text if isinstance(text, dict) else {"text": text}


def _sampled(model: SentenceTransformer) -> list[torch.Tensor]:
    """Some 100 numbers of each tensor of the backbone, on the CPU."""
    modules, start, _ = split(model)
    tensors = [tensor.detach().flatten() for module in modules[:start] for tensor in module.state_dict().values()]
    return [tensor[:: max(1, len(tensor) // 100)].cpu().clone() for tensor in tensors]
