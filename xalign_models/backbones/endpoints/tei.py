"""text-embeddings-inference with its own API, which truncates long texts and names the served model."""

from collections.abc import Sequence
from functools import cached_property

from xalign_models.backbones.endpoints.endpoint import Answer, Endpoint
from xalign_models.errors import ModelError, plural


class TEIEndpoint(Endpoint):
    """``tei:MODEL@http://host:8080``; MODEL is the server's name for the model."""

    scheme = "tei"

    @cached_property
    def most_texts(self) -> int:  # type: ignore[override]
        """The server's limit on texts per request; 32, TEI's default, if the server does not state it.

        Raises:
            ModelError: The server has another model.
        """
        info = self.client.get("/info")
        info = info if isinstance(info, dict) else {}
        serves = info.get("model_id")
        if isinstance(serves, str) and serves != self.served:
            name = "".join(letter for letter in serves[:80] if letter.isprintable())
            raise ModelError(f"{self.model}: the server has another model, {name}.")
        most = info.get("max_client_batch_size")
        return most if type(most) is int and 0 < most <= 4096 else 32

    def ask(self, texts: Sequence[str], request: str) -> Answer:
        """Vectors in the order of the texts; TEI's answers have no token counts."""
        _ = self.most_texts  # checks the model's name
        body = {"inputs": list(texts), "truncate": True, "normalize": False}
        answer = self.client.post("/embed", body, request)
        if not isinstance(answer, list) or len(answer) != len(texts):
            count = plural(len(answer), "vector") if isinstance(answer, list) else "no list of vectors"
            raise ModelError(f"{self.model}: {request} failed: {count} for {plural(len(texts), 'text')}.")
        return Answer(answer)
