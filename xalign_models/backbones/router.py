"""Models that encode queries and documents differently: sentence-transformers' Router, formerly called Asym.

The prompt carries the route, so the store keeps the vectors of each route separate.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

from sentence_transformers.base.modules.router import Router
from torch import nn

from xalign_models.backbones.borrowed import resolve_route
from xalign_models.backbones.inputs import described, split_inputs, with_side
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.errors import ModelError

SIDES = ("query", "document")


class LanguageRouter(Router):
    """sentence-transformers' Router, for inputs that carry their language.

    Its import path is a file format: do not move it. ``default_lang`` is the language of texts without one; ``auto``
    identifies it. Other arguments are Router's.
    """

    config_keys = [*Router.config_keys, "default_lang"]

    def __init__(self, *args: Any, default_lang: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_lang = default_lang

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, task: str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Tokenise with the first module of the task's route; set ``features["lang"]`` if an input names a language.

        Raises:
            ModelError: The task has no route.
        """
        lang = kwargs.pop("lang", None) or self.default_lang
        first = self.sub_modules[route_of(self, task)][0]
        texts, languages = split_inputs(inputs, lang)
        if isinstance(first, LanguageTransformer):  # it has prompts by language
            texts, kwargs["lang"] = list(inputs), lang
        kwargs["modality"] = "text"
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, task=task, **kwargs)
        side = str(task) if task in sides_of([self]) else ""
        return {**features, **described(languages, with_side(side, prompt or features.get("prompt", "")))}


class _Unread(nn.Identity):
    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Self:
        """Open nothing."""
        return cls()


def read_routes(model: Path, folder: str, types: Iterable[str]) -> Router:
    """A saved Router in a folder of a model's directory, without the weights of modules of the given types."""
    return LanguageRouter.load(str(model), subfolder=folder, module_classes=dict.fromkeys(types, _Unread))


def route_of(router: Router, side: str | None) -> str:
    """The route for texts of a side, ``query`` or ``document``, or for texts without a side.

    Raises:
        ModelError: There is no such route.
    """
    try:
        return resolve_route(router, side or None)
    except ValueError:
        routes = ", ".join(router.sub_modules)
        which = f"no route for a {side}" if side else "no default route for texts that are neither query nor document"
        raise ModelError(f"The model has {which}; its routes are {routes}.") from None


def sides_of(modules: Iterable[Any]) -> frozenset[str]:
    """The sides that modules encode differently from texts without a side."""
    routers = [module for module in modules if isinstance(module, Router)]
    return frozenset(side for side in SIDES if any(_known(router, side) != _known(router, None) for router in routers))


def _known(router: Router, side: str | None) -> str | None:
    try:
        return route_of(router, side)
    except ModelError:
        return None


def of_route(modules: Iterable[Any], side: str) -> list[Any]:
    """The modules for texts of a side; ``""`` means no side. Errors as in :func:`route_of`."""
    return [
        part
        for module in modules
        for part in (module.sub_modules[route_of(module, side)] if isinstance(module, Router) else [module])
    ]


def first_modules(modules: Sequence[Any]) -> list[Any]:
    """The first module of each route, or of the model."""
    first = modules[0]
    routes: Mapping[str, Any] = first.sub_modules if isinstance(first, Router) else {"": modules}
    return list(dict.fromkeys(route[0] for route in routes.values()))


def all_modules(modules: Iterable[Any]) -> list[Any]:
    """The modules, with each Router followed by the modules of its routes."""
    routes = ((module, *chain(*getattr(module, "sub_modules", {}).values())) for module in modules)
    return list(chain(*routes))
