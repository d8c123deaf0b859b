"""Stage 1: the frozen language model writes a text that the encoder read, and connector and encoder learn to tell it.

Two tasks with one loss: masked reconstruction (the encoder reads half of the tokens, the whole text is to be written)
and completion (it reads a question, an answer is to be written). The language model reads ``[BOS, C(X), t, Y]`` with
its own causal mask, and the loss is the mean of ``-log p(y_j | BOS, C(X), t, y_1 ... y_{j-1})`` over all tokens of Y.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from xalign_models.backbones.grouping import similar_lengths
from xalign_models.errors import DataError, ModelError
from xalign_models.training.instruments import placed
from xalign_models.training.lusifer.attention import attention
from xalign_models.training.lusifer.connector import join
from xalign_models.training.lusifer.module import Lusifer
from xalign_models.training.objective import Objective, Verdict

LEAST_GAIN = 0.1
"""Nats a token that soft tokens must save for a text to have got through at all."""


class StageOne(Objective):
    """The objective of stage 1, of rows with ``source``, ``target`` and whether to ``reconstruct``.

    Args:
        lusifer: What is trained; its language model is ``writer``'s without the head.
        writer: The language model with its head, frozen.
        tokenizer: The language model's.
        ends: Ids of its begin and its end token; a target that is cut has no end.
        limit: Tokens that a target is cut at.
        ratio: Share of the encoder's input tokens that are masked in rows of reconstruction.
        held_out: Rows to measure on.
        every: Optimisation steps from one measurement to the next.
        decay_at_gain: The gain at which the learning rate begins to fall; None leaves it to the trainer's schedule.

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
        decay_at_gain: float | None = None,
    ) -> None:
        super().__init__()
        self.held_out, self.every, self.decay_at_gain = list(held_out), every, decay_at_gain
        self.steps, self.reached = 0, cast("int | None", None)
        self.lusifer, self.writer, self.tokenizer = lusifer, writer, tokenizer
        self.bos, self.eos = ends
        self.limit, self.ratio = limit, ratio
        reads = lusifer.tokenizer
        if reads.mask_token_id is None:
            raise ModelError(f"encoder {lusifer.encoder_base.get('model')}: its tokenizer has no mask token.")
        self.mask_id: int = reads.mask_token_id
        self.special = [token for token in reads.all_special_ids if token != reads.unk_token_id]

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Tokenise a batch: sources by the encoder's tokenizer, targets by the language model's."""
        features = self.lusifer.preprocess([row["source"] for row in rows])
        written = self.tokenizer([row["target"] for row in rows], add_special_tokens=False)["input_ids"]
        targets = [torch.tensor([*ids, self.eos][: self.limit]) for ids in written]
        features["reconstruct"] = torch.tensor([row["reconstruct"] for row in rows])
        features["target_ids"] = nn.utils.rnn.pad_sequence(targets, batch_first=True)
        features["target_mask"] = nn.utils.rnn.pad_sequence([torch.ones_like(ids) for ids in targets], batch_first=True)
        return features

    def train(self, mode: bool = True) -> Self:
        """Training mode for what is trained; the language model is not."""
        super().train(mode)
        self.writer.eval()
        self.lusifer.train(mode)
        return self

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["loss"]``, the mean over the batch's target tokens.

        Args:
            features: The encoder's ``input_ids`` and ``attention_mask`` (b, s), ``reconstruct`` (b,), and the targets'
                ``target_ids`` and ``target_mask`` (b, u).
            **kwargs: Not looked at.

        Raises:
            DataError: No row has a target token.
        """
        count = int(features["target_mask"].sum())
        if not count:
            raise DataError("A batch of stage 1 has no token to write; leave empty texts out of the data.")
        if self.training:
            features = {**features, "input_ids": self.masked(features)}
        total = sum(self._loss(part) for part in self._parts(features))
        return {**features, "loss": total / count}

    def measure(self) -> dict[str, Any]:
        """Nats that a held-out text's tokens cost behind its own soft tokens, and how many fewer than behind another's.

        Nothing is masked. The other text is the row's neighbour, so that both costs are of the same tokens.
        """
        rows = [row for row in self.held_out if row["source"].strip() and row["target"].strip()]
        if len(rows) < 2:
            return {}
        self.eval()
        turned = [{**row, "source": other["source"]} for row, other in zip(rows, rows[1:] + rows[:1], strict=True)]
        own, other = self._cost(rows), self._cost(turned)
        if self.decay_at_gain is not None and self.reached is None and other - own > self.decay_at_gain:
            self.reached = self.steps
        return {"held_out_loss": own, "gain": other - own}

    def step(self) -> dict[str, Any]:
        """Count it."""
        self.steps += 1
        return {}

    def rate(self, step: int, steps: int) -> float | None:
        """All of it until the gain was reached, then ever less."""
        if self.decay_at_gain is None:
            return None
        return 1.0 if self.reached is None else max(0.0, (steps - step) / (steps - self.reached))

    def state(self) -> dict[str, Any]:
        """How far it has come."""
        return {"steps": self.steps, "reached": self.reached}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.steps, self.reached = state["steps"], state["reached"]

    def _cost(self, rows: Sequence[Mapping[str, Any]], size: int = 16) -> float:
        """Mean cost of a target token, in nats."""
        device, total, count = self.lusifer.connector.token.device, 0.0, 0
        for start in range(0, len(rows), size):
            features = placed(self.collate(rows[start : start + size]), device)
            total += sum(float(self._loss(part)) for part in self._parts(features))
            count += int(features["target_mask"].sum())
        return total / count

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> Verdict | None:
        """Nothing was learnt if the language model writes a text no better for having read it."""
        text = f"A held-out text's own soft tokens save {last['gain']:.2f} nats a token over another's"
        learnt = last["gain"] > max(LEAST_GAIN, first["gain"])
        return Verdict(learnt, f"{text} ({first['gain']:.2f} before)" + ("." if learnt else ": nothing was learnt."))

    def masked(self, features: dict[str, Any]) -> Tensor:
        """The input with each content token masked with probability ``ratio``, in rows of reconstruction alone.

        torch's own generator draws, whose state a checkpoint keeps.
        """
        ids: Tensor = features["input_ids"]
        content = ~torch.isin(ids, torch.tensor(self.special, device=ids.device))
        chosen = torch.rand(ids.shape, device=ids.device) < self.ratio
        return torch.where(chosen & content & features["reconstruct"][:, None], self.mask_id, ids)

    def logits(self, features: dict[str, Any]) -> Tensor:
        """(tokens, vocabulary): for each target token, row by row, what was expected before it was seen."""
        ids, mask = features["target_ids"], features["target_mask"].bool()
        embedding = self.writer.get_input_embeddings()
        soft = self.lusifer.soft_tokens(features)
        begin = embedding(torch.full((len(ids),), self.bos, device=ids.device))
        pieces = [(begin, mask.new_ones(len(ids), 1)), *soft, (embedding(ids[mask]), mask)]
        embeds, real = join(pieces)
        before = real.sum(dim=1) - mask.sum(dim=1) - 1  # the position that expects a row's first target token
        columns = (before[:, None] + mask.cumsum(dim=1) - 1)[mask]
        rows = mask.nonzero()[:, 0]

        def only_where_needed(_: nn.Module, states: tuple[Tensor]) -> Tensor:
            return states[0][rows, columns][None]  # a vocabulary's width at every position would be most of the work

        hook = self.writer.get_output_embeddings().register_forward_pre_hook(only_where_needed)
        try:
            with attention(self.lusifer.llm, causal=True):
                found: Tensor = self.writer(inputs_embeds=embeds.to(self.writer.dtype), attention_mask=real).logits[0]
        finally:
            hook.remove()
        return found

    def _loss(self, features: dict[str, Any]) -> Tensor:
        targets = features["target_ids"][features["target_mask"].bool()]
        return cross_entropy(self.logits(features).float(), targets, reduction="sum")

    def _parts(self, features: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The batch in parts of similar length, as the language model sees them."""
        masks = {False: features["attention_mask"], True: features["target_mask"]}
        lengths = {"attention_mask": torch.cat([*masks.values()], dim=1)}
        for rows, _ in similar_lengths(lengths, self.writer):
            used = {side: mask[rows].any(dim=0).nonzero()[:, 0] for side, mask in masks.items()}
            yield {
                name: value[rows][:, used[name.startswith("target_")]] if value.ndim == 2 else value[rows]
                for name, value in features.items()
                if torch.is_tensor(value)
            }
