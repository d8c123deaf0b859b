"""The application: OpenAI's ``/v1/embeddings`` and ``/v1/models``, ``/v1/scores``, ``/health`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from xalign_models.alignments.module import Aligned
from xalign_models.backbones.loading import prompt_languages, prompts_by_language
from xalign_models.backbones.router import SIDES
from xalign_models.errors import DataError, FileError, LanguageError, XAlignError, one_line
from xalign_models.files import is_number, parse_json
from xalign_models.identification import UNDETERMINED, identify
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.serving.batching import Batcher
from xalign_models.thresholds import Thresholds

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)
EMBEDDINGS = ("input", "model", "lang", "prompt", "encoding_format", "dimensions", "user")
SCORES = ("query", "documents", "query_lang", "document_lang", "rate", "model")
"""The fields of requests."""
LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in requests."""


@dataclass(frozen=True)
class Limits:
    """Bounds of what a server accepts.

    Attributes:
        texts: Texts in a request.
        characters: Characters in a text.
        bytes: Length of a request's body.
        waiting: Texts that wait or are being encoded; with more, requests get status 429.
        batch: Texts from which a batch takes no further request.
        seconds: Time until a request gets status 504.
    """

    texts: int = 2048
    characters: int = 1_000_000
    bytes: int = 16 << 20
    waiting: int = 8192
    batch: int = 256
    seconds: float = 120.0


class Server:
    """Serves one model.

    Args:
        model: The model; its vectors are those of ``encode``.
        name: The model's name, which requests repeat; ``NAME:PROMPT`` chooses one of its prompts.
        token: Bearer token that requests must have; None for none.
        thresholds: Thresholds for ``/v1/scores``.
        limits: Bounds of requests.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        name: str,
        token: str | None = None,
        thresholds: Thresholds | None = None,
        limits: Limits = Limits(),  # frozen
    ) -> None:
        self.model, self.name, self.token, self.thresholds, self.limits = model, name, token, thresholds, limits
        self.batcher = Batcher(self._encode, limits.batch, limits.waiting)
        self.counts: Counter[str] = Counter()
        own = prompts_by_language(model.prompts)  # which a role's prompt would replace
        self.prompts = [name for name, text in model.prompts.items() if not own or name in own or not text]
        spoken = [module for module in model if isinstance(module, Aligned) and module.languages is not None]
        spoken += [model[0]] if prompt_languages(model.prompts) is not None else []
        self._found = any(getattr(module, "default_lang", "") is None for module in spoken)  # texts without a language

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [("/v1/embeddings", self._embeddings), ("/v1/scores", self._scores)]
        return Starlette(
            routes=[
                *(Route(path, self._guarded(handler), methods=["POST"]) for path, handler in routes),
                Route("/v1/models", self._guarded(self._models)),
                Route("/metrics", self._guarded(self._metrics)),
                Route("/health", self._health),
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused},
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._worker = asyncio.create_task(self.batcher.run())
        yield
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker

    def _encode(self, rows: list[Any], prompt: str | None) -> AnyFloats:
        begin = time.perf_counter()
        side = "document" if prompt == "passage" else prompt
        route = {"task": side} if side in SIDES else {}
        vectors: AnyFloats = self.model.encode(rows, prompt_name=prompt, show_progress_bar=False, **route)
        if not np.isfinite(vectors).all():
            raise DataError("the model returned a vector that is not finite.")
        self.counts["xalign_encode_seconds_total"] += time.perf_counter() - begin  # type: ignore[assignment]
        self.counts["xalign_batches_total"] += 1
        self.counts["xalign_texts_total"] += len(rows)
        return vectors

    def _guarded(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """The handler behind the token, with a time limit and with errors in the form of OpenAI's."""

        async def answer(request: Request) -> Response:
            try:
                given = request.headers.get("authorization", "").encode()
                if self.token and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                    raise HTTPException(401, "The bearer token is missing or wrong.")
                host = re.sub(r":\d*$", "", request.headers.get("host", "").lower())
                if not self.token and host not in LOCAL:  # a site whose name leads here would read vectors
                    raise HTTPException(400, "Without XALIGN_SERVE_TOKEN, a request must name localhost as its host.")
                response: Response = await asyncio.wait_for(handler(request), self.limits.seconds)
            except HTTPException as error:
                response = await _refused(request, error)
            except ClientDisconnect:  # nobody reads the answer; its status is nginx's, for the counts
                response = _error(499, "The client left before the request ended.")
            except TimeoutError:
                response = _error(504, f"The vectors were not ready in {self.limits.seconds:g} seconds.")
            except (LanguageError, DataError, FileError) as error:
                response = _error(400, one_line(error))
            except XAlignError as error:  # the server behind the model, for instance
                logger.warning("%s", one_line(error))
                response = _error(502, "The model cannot encode now; the server's log says why.")
            except Exception as error:
                logger.exception("a request failed")
                response = _error(500, f"The request failed ({type(error).__name__}); the server's log says why.")
            self.counts[f'xalign_requests_total{{status="{response.status_code}"}}'] += 1
            return response

        return answer

    async def _body(self, request: Request, *fields: str) -> dict[str, Any]:
        """The JSON object of a request; a browser sends no JSON to another site without asking, so the type counts.

        Fields other than ``fields`` are refused: a misspelt ``lang`` would otherwise change vectors silently.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "The content type must be application/json.")
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > self.limits.bytes:
                raise HTTPException(413, f"The request is longer than {self.limits.bytes} bytes.")
        body: dict[str, Any] = parse_json(bytes(content), "the request")
        if unknown := [name for name in body if name not in fields]:
            raise HTTPException(400, f"The field {unknown[0]} is unknown; a request may have {', '.join(fields)}.")
        return body

    def _texts(self, value: Any, label: str) -> list[str]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            tokens = isinstance(texts, list) and any(isinstance(text, int | list) for text in texts)
            hint = " It has token ids; LangChain sends texts with check_embedding_ctx_length=False." if tokens else ""
            raise HTTPException(400, f"{label} must be a text or a list of texts, none of them empty.{hint}")
        if len(texts) > self.limits.texts or max(map(len, texts)) > self.limits.characters:
            most = f"{self.limits.texts} texts of {self.limits.characters} characters"
            raise HTTPException(413, f"{label} may have at most {most}.")
        return texts

    def _languages(self, value: Any, count: int) -> list[str | None]:
        codes = [value] * count if value is None or isinstance(value, str) else value
        if not isinstance(codes, list) or len(codes) != count or not all(isinstance(c, str | None) for c in codes):
            raise HTTPException(400, "lang must be a language code, or a list of one for each text.")
        codes = [code or ("auto" if self._found else None) for code in codes]
        return [code if code in {None, "auto"} else canonical(code) for code in codes]

    async def _vectors(self, texts: list[str], codes: list[str | None], prompt: str | None) -> AnyFloats:
        rows = [{"text": text, "lang": code} if code else text for text, code in zip(texts, codes, strict=True)]
        return await self.batcher.submit(rows, prompt)

    def _prompt(self, body: dict[str, Any]) -> str | None:
        """The name of the request's prompt, from ``prompt`` or after the model's name; None for the default one."""
        named = str(body.get("model") or self.name)
        prompt = body.get("prompt") or named.removeprefix(self.name)[1:] or None
        known = prompt is None or (isinstance(prompt, str) and prompt in self.prompts)
        if not (known and (named == self.name or named.startswith(f"{self.name}:"))):
            raise HTTPException(404, f"There is no such model or prompt; {', '.join(self._names())} are served.")
        return prompt

    def _names(self) -> list[str]:
        return [self.name, *(f"{self.name}:{prompt}" for prompt in self.prompts)]

    async def _embeddings(self, request: Request) -> Response:
        body = await self._body(request, *EMBEDDINGS)
        texts, form = self._texts(body.get("input"), "input"), body.get("encoding_format")
        if form not in (None, "float", "base64"):  # a tuple, as it may be a list
            raise HTTPException(400, "encoding_format must be float or base64.")
        codes, prompt = self._languages(body.get("lang"), len(texts)), self._prompt(body)
        if body.get("dimensions") not in (None, self.model.get_embedding_dimension()):
            raise HTTPException(400, f"dimensions must be {self.model.get_embedding_dimension()}, or left out.")
        vectors = np.asarray(await self._vectors(texts, codes, prompt), "<f4")
        data = [
            {"object": "embedding", "index": index,
             "embedding": base64.b64encode(row.tobytes()).decode() if form == "base64" else row.tolist()}
            for index, row in enumerate(vectors)
        ]  # fmt: skip
        tokens = sum(-(-len(text.encode("utf-8", "replace")) // 4) for text in texts)  # an estimate
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": self.name, "usage": usage})

    async def _scores(self, request: Request) -> Response:
        """Cosines of a query and documents, standardised by their languages, against one threshold."""
        body = await self._body(request, *SCORES)
        if self.thresholds is None:
            raise HTTPException(404, "The server has no thresholds; start it with --thresholds FILE.")
        self._prompt(body)
        if not is_number(rate := body.get("rate", 0.01)):
            raise HTTPException(400, "rate must be a number.")
        threshold = self.thresholds.at(rate)
        if len(query := self._texts(body.get("query"), "query")) > 1:
            raise HTTPException(400, "query must be a single text.")
        texts = query + self._texts(body.get("documents"), "documents")
        codes = self._languages(body.get("query_lang"), 1) + self._languages(body.get("document_lang"), len(texts) - 1)
        written = dict.fromkeys(code for row in self.thresholds.pairs.values() for code in row)
        sides = [self.thresholds.pairs, *[written] * (len(texts) - 1)]
        found = [code if code and code != "auto" else identify([text], (*side,))[0].language
                 for text, code, side in zip(texts, codes, sides, strict=True)]  # fmt: skip
        if UNDETERMINED in found:
            raise HTTPException(400, "The language of a text is in doubt; give query_lang and document_lang.")
        roles = [next((role for role in names if role in self.prompts), None)
                 for names in (("query",), ("document", "passage"))]  # fmt: skip
        asked = await self._vectors(texts[:1], codes[:1], roles[0])
        documents = await self._vectors(texts[1:], codes[1:], roles[1])
        lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(asked)
        cosines = (documents @ asked[0]) / np.maximum(lengths, 1e-12)
        scores = self.thresholds.standardise(cosines, found[0], found[1:])
        data = [{"index": index, "cosine": float(cosine), "score": float(score), "related": bool(score > threshold)}
                for index, (cosine, score) in enumerate(zip(cosines, scores, strict=True))]  # fmt: skip
        return JSONResponse({"data": data, "threshold": threshold, "languages": found})

    async def _models(self, _: Request) -> Response:
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "xalign"} for name in self._names()]
        return JSONResponse({"object": "list", "data": data})

    async def _health(self, _: Request) -> Response:
        alive = not self._worker.done()
        return JSONResponse({"status": "ok" if alive else "failed"}, 200 if alive else 503)

    async def _metrics(self, _: Request) -> Response:
        lines = [f"{name} {value}" for name, value in sorted(self.counts.items())]
        return PlainTextResponse("\n".join([*lines, f"xalign_texts_waiting {self.batcher.waiting}"]) + "\n")


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response


def _error(status: int, message: str) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)
