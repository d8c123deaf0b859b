"""OpenAI's embeddings protocol, which vLLM, infinity, Ollama, TEI and most vendors implement."""

from collections.abc import Sequence
from typing import Any

from xalign_models.backbones.endpoints.endpoint import Answer, Endpoint
from xalign_models.errors import ModelError, plural


class OpenAIEndpoint(Endpoint):
    """``openai:MODEL@http://host:8000/v1``; the default address is OpenAI's own."""

    scheme = "openai"
    default_url = "https://api.openai.com/v1"

    def ask(self, texts: Sequence[str], request: str) -> Answer:
        """Vectors sorted by their ``index``, ``usage.total_tokens``, and ``model``."""
        body = {"model": self.served, "input": list(texts), "encoding_format": "base64"}
        answer = self.client.post("/embeddings", body, request)
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise ModelError(f"{self.model}: {request} failed: the answer has no list of embeddings in `data`.")
        if len(data) != len(texts):
            raise ModelError(f"{self.model}: {request} failed: {plural(len(data), 'embedding')}, not {len(texts)}.")
        rows = {item.get("index"): item.get("embedding") for item in data if type(item.get("index")) is int}
        if missing := [i for i in range(len(texts)) if i not in rows]:
            raise ModelError(f"{self.model}: {request} failed: the answer has no index {missing[0]}.")
        return Answer([rows[i] for i in range(len(texts))], tokens_of(answer), str(answer.get("model") or ""))


def tokens_of(answer: Any) -> int | None:
    """The server's count of tokens in an answer; None if it gives none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 < tokens < 1 << 40 else None
