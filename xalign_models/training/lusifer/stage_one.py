"""Stage 1: a frozen language model writes the text that the encoder reads; connector and encoder learn to convey it.

Two tasks share one loss: masked reconstruction (the encoder reads half of the tokens, the target is the whole text)
and completion (it reads a question, the target is an answer). The language model reads ``[BOS, C(X), t, Y]`` with
its causal mask, and the loss is the mean of ``-log p(y_j | BOS, C(X), t, y_1 ... y_{j-1})`` over all tokens of Y.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from xalign_models.backbones.batching import similar_lengths
from xalign_models.errors import DataError, ModelError
from xalign_models.generation.journal import batched
from xalign_models.training.lusifer.connector import join
from xalign_models.training.lusifer.decoder import attention
from xalign_models.training.lusifer.module import Lusifer
from xalign_models.training.objective import Objective, TrainingOutcome

LEAST_GAIN = 0.1
"""Minimum nats per token that a text's soft tokens must save to count as a transfer of the text."""


class StageOne(Objective):
    """The objective of stage 1; a row has a ``source``, a ``target`` and whether to ``reconstruct``.

    Args:
        lusifer: The model in training; its language model is ``writer`` without the head.
        writer: The language model with its head, frozen.
        tokenizer: The language model's tokenizer.
        ends: Ids of its begin and end tokens; a truncated target has no end token.
        limit: Maximum number of tokens of a target.
        ratio: Share of the encoder's input tokens that are masked in reconstruction.
        held_out: Rows to measure on.
        every: Optimisation steps between measurements.

    Raises:
        ModelError: The encoder's tokenizer has no mask token.
    """

    def __init__(
        self,
        lusifer: Lusifer,
        writer: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        ends: tuple[int, int],
        limit: int,
        ratio: float = 0.5,
        held_out: Sequence[Mapping[str, Any]] = (),
        every: int | None = None,
    ) -> None:
        super().__init__()
        self.held_out, self.every = list(held_out), every
        self.lusifer, self.writer, self.tokenizer = lusifer, writer, tokenizer
        self.bos, self.eos = ends
        self.limit, self.ratio = limit, ratio
        reads = lusifer.tokenizer
        if reads.mask_token_id is None:
            raise ModelError(f"encoder {lusifer.encoder_base.get('model')}: its tokenizer has no mask token.")
        self.mask_id: int = reads.mask_token_id
        self.special = [token for token in reads.all_special_ids if token != reads.unk_token_id]

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Tokenise sources with the encoder's tokenizer and targets with the language model's."""
        features = self.lusifer.preprocess([row["source"] for row in rows])
        written = self.tokenizer([row["target"] for row in rows], add_special_tokens=False)["input_ids"]
        targets = [torch.tensor([*ids, self.eos][: self.limit]) for ids in written]
        features["reconstruct"] = torch.tensor([row["reconstruct"] for row in rows])
        features["target_ids"] = nn.utils.rnn.pad_sequence(targets, batch_first=True)
        features["target_mask"] = nn.utils.rnn.pad_sequence([torch.ones_like(ids) for ids in targets], batch_first=True)
        return features

    def train(self, mode: bool = True) -> Self:
        """Training mode for all parts except the frozen language model."""
        super().train(mode)
        self.writer.eval()
        self.lusifer.train(mode)
        return self

    def loss(self, features: dict[str, Any]) -> Tensor:
        """The mean over the batch's target tokens.

        The features are the encoder's ``input_ids`` and ``attention_mask`` (b, s), ``reconstruct`` (b,), and the
        targets' ``target_ids`` and ``target_mask`` (b, u).

        Raises:
            DataError: No row has a target token.
        """
        count = int(features["target_mask"].sum())
        if not count:
            raise DataError("A batch of stage 1 has no target token; remove empty texts from the data.")
        if self.training:
            features = {**features, "input_ids": self.masked(features)}
        return torch.stack([self._loss(part) for part in self._parts(features)]).sum() / count

    def measure(self) -> dict[str, Any]:
        """Nats per token of held-out texts after their own soft tokens, and the gain over another text's soft tokens.

        Nothing is masked. The other text is the next row's, so both costs are for the same target tokens.
        """
        rows = [row for row in self.held_out if row["source"].strip() and row["target"].strip()]
        if len(rows) < 2:
            return {}
        self.eval()
        turned = [{**row, "source": other["source"]} for row, other in zip(rows, rows[1:] + rows[:1], strict=True)]
        own_cost, other = self._cost(rows), self._cost(turned)
        return {"held_out_loss": own_cost, "gain": other - own_cost}

    def _cost(self, rows: Sequence[Mapping[str, Any]], size: int = 16) -> float:
        device, total, count = self.lusifer.connector.token.device, 0.0, 0
        for batch in batched(rows, size):
            features = batch_to_device(self.collate(batch), device)
            total += sum(float(self._loss(part)) for part in self._parts(features))
            count += int(features["target_mask"].sum())
        return total / count

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Compare the nats that a text's own soft tokens save, before and after training."""
        text = f"A held-out text's own soft tokens save {last['gain']:.2f} nats a token over another's"
        learnt = last["gain"] > max(LEAST_GAIN, first["gain"])
        return TrainingOutcome.of(learnt, f"{text} ({first['gain']:.2f} before)")

    def masked(self, features: dict[str, Any]) -> Tensor:
        """The input ids, with each content token masked with probability ``ratio`` in reconstruction.

        Draws from torch's global generator, whose state is part of a checkpoint.
        """
        ids: Tensor = features["input_ids"]
        content = ~torch.isin(ids, torch.tensor(self.special, device=ids.device))
        chosen = torch.rand(ids.shape, device=ids.device) < self.ratio
        return torch.where(chosen & content & features["reconstruct"][:, None], self.mask_id, ids)

    def logits(self, features: dict[str, Any]) -> Tensor:
        """Predictions (tokens, vocabulary) for each target token, row by row."""
        ids, mask = features["target_ids"], features["target_mask"].bool()
        embedding = self.writer.get_input_embeddings()
        soft = self.lusifer.soft_tokens(features)
        begin = embedding(torch.full((len(ids),), self.bos, device=ids.device))
        embeds, real = join([(begin, mask.new_ones(len(ids), 1)), *soft, (embedding(ids[mask]), mask)])
        before = real.sum(dim=1) - mask.sum(dim=1) - 1  # the position that predicts a row's first target token
        columns = (before[:, None] + mask.cumsum(dim=1) - 1)[mask]
        rows = mask.nonzero()[:, 0]

        def only_where_needed(_: nn.Module, states: tuple[Tensor]) -> Tensor:
            return states[0][rows, columns][None]  # computing all logits would be most of the work

        hook = self.writer.get_output_embeddings().register_forward_pre_hook(only_where_needed)
        try:
            with attention(self.lusifer.llm, causal=True):
                logits: Tensor = self.writer(inputs_embeds=embeds.to(self.writer.dtype), attention_mask=real).logits[0]
        finally:
            hook.remove()
        return logits

    def _loss(self, features: dict[str, Any]) -> Tensor:
        targets = features["target_ids"][features["target_mask"].bool()]
        return cross_entropy(self.logits(features).float(), targets, reduction="sum")

    def _parts(self, features: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The batch in parts whose rows have similar lengths for the language model."""
        masks = {False: features["attention_mask"], True: features["target_mask"]}
        lengths = {"attention_mask": torch.cat([*masks.values()], dim=1)}
        for rows, _ in similar_lengths(lengths, self.writer):
            used = {side: mask[rows].any(dim=0).nonzero()[:, 0] for side, mask in masks.items()}
            yield {
                name: value[rows][:, used[name.startswith("target_")]] if value.ndim == 2 else value[rows]
                for name, value in features.items()
                if torch.is_tensor(value)
            }
