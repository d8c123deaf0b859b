"""A causal language model that writes: greedy or sampled, in batches, up to a stop string; and what it expects next."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch

from xalign_models import assets
from xalign_models.backbones.checkpoint import open_pretrained
from xalign_models.device import pick_device
from xalign_models.specs import Dtype

EVERY, TAIL = 8, 24
"""Stop strings and loops are looked for every so many tokens, in the last ones: always would be as slow as writing."""
WORTH = 16
"""Tokens that prompts must share to be read once for all of them."""
LONGEST, TIMES = 8, 6
"""Tokens of what is written over and over, and how often: then a model has lost its thread."""


class Completion(NamedTuple):
    """What a model wrote."""

    text: str
    """Up to the stop string, without it."""
    finished: bool
    """Whether it stopped by itself rather than at the limit."""


class LanguageModel:
    """A checkpoint with its head; its weights are loaded when it first writes.

    Args:
        model: Asset, directory or hub id.
        revision: Hub revision.
        device: cpu, cuda or mps; by default the best there is.
        dtype: Of weights and activations; by default bfloat16 on a GPU that has it, else float32.
        encoder_decoder: Whether it is a sequence-to-sequence model rather than a causal one.
    """

    def __init__(
        self,
        model: str,
        revision: str | None = None,
        device: str | None = None,
        dtype: Dtype | None = None,
        *,
        encoder_decoder: bool = False,
    ) -> None:
        self.name = model
        self.encoder_decoder = encoder_decoder
        self._revision, self._device, self._dtype = revision, device, dtype

    @cached_property
    def resolved(self) -> assets.ResolvedModel:
        """Where the checkpoint lies, and the fingerprint of its content."""
        return assets.resolve(self.name, self._revision)

    @cached_property
    def device(self) -> str:
        """Where it runs."""
        return pick_device(self._device)

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's own, padding on the left for a causal model."""
        from transformers import AutoTokenizer

        tokenizer = open_pretrained(AutoTokenizer, self.resolved)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        tokenizer.padding_side = "right" if self.encoder_decoder else "left"
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The weights, on the device.

        Raises:
            AssetError: The checkpoint cannot be had or is no such model.
            ModelError: The checkpoint lacks weights, as one without a head does.
        """
        from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

        kind = AutoModelForSeq2SeqLM if self.encoder_decoder else AutoModelForCausalLM
        half = self.device.startswith("cuda") and torch.cuda.is_bf16_supported()
        dtype = self._dtype or (Dtype.BFLOAT16 if half else Dtype.FLOAT32)
        model = open_pretrained(kind, self.resolved, dtype=str(dtype))
        return model.to(self.device).eval()

    def chat(self, prompt: str) -> str:
        """The prompt as the user's turn where the checkpoint was trained to chat, else as it is."""
        if not self.tokenizer.chat_template:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        text: str = self.tokenizer.apply_chat_template(
            turn, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return text

    def tokenize(self, prompts: Sequence[str], limit: int | None = None) -> Any:
        """A padded batch on the device; a prompt whose template wrote the begin token does not get a second one."""
        begin = self.tokenizer.bos_token
        special = not (begin and all(prompt.startswith(begin) for prompt in prompts))
        batch = self.tokenizer(
            list(prompts),
            return_tensors="pt",
            padding=True,
            add_special_tokens=special,
            truncation=limit is not None,
            max_length=limit,
        )
        batch.pop("token_type_ids", None)
        return batch.to(self.device)

    @torch.inference_mode()
    def _begun(self, prompts: Sequence[str], more: int) -> dict[str, Any]:
        """A padded batch in which what all prompts begin with, examples or a task, has been read: once, not n times.

        The padding is between the common beginning and the rest. A sliding window would count it, so that nothing is
        read beforehand where prompts and the up to ``more`` tokens that follow are longer than one.
        """
        batch = self.tokenize(prompts)
        rows = [ids[mask.bool()] for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        common = _common([row.tolist() for row in rows])
        window = getattr(self.model.config.get_text_config(), "sliding_window", None)
        if len(rows) < 2 or common < WORTH or (window and batch["input_ids"].shape[1] + more > window):
            return dict(batch)
        first = self.model(rows[0][None, :common], use_cache=True, logits_to_keep=1)
        first.past_key_values.batch_repeat_interleave(len(rows))
        longest = max(map(len, rows)) - common
        ids = rows[0].new_full((len(rows), common + longest), self.tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, :common], mask[place, :common] = row[:common], 1
            own = len(row) - common
            ids[place, common + longest - own :], mask[place, common + longest - own :] = row[common:], 1
        return {"input_ids": ids, "attention_mask": mask, "past_key_values": first.past_key_values}

    def write(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int,
        stop: tuple[str, ...] = (),
        temperature: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> list[Completion]:
        """Completions of prompts, which are padded together; one that repeats itself without end is cut short.

        Args:
            prompts: Texts; of a sequence-to-sequence model its inputs, cut at the length that it can read.
            max_new_tokens: The limit.
            stop: Writing ends where any of them appears.
            temperature: 0 takes the likeliest token each time; else tokens are drawn.
            seed: Of the drawing.
            **options: For transformers' ``generate``.
        """
        from transformers import StoppingCriteriaList

        batch = (
            self.tokenize(prompts, self._longest()) if self.encoder_decoder else self._begun(prompts, max_new_tokens)
        )
        start = 0 if self.encoder_decoder else batch["input_ids"].shape[1]
        tokenizer = self.tokenizer

        looping = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)

        def stopped(ids: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
            if (ids.shape[1] - start) % EVERY:
                return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            if not self.encoder_decoder:
                looping.logical_or_(repeats(ids[:, start:]) & (ids[:, -1] != tokenizer.pad_token_id))
            tails = tokenizer.batch_decode(ids[:, max(start, ids.shape[1] - TAIL) :], skip_special_tokens=True)
            ended = torch.tensor([any(one in tail for one in stop) for tail in tails], device=ids.device)
            return ended if self.encoder_decoder else ended | looping

        drawn = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
        with torch.inference_mode(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            ids = self.model.generate(
                **batch,
                max_new_tokens=max_new_tokens,
                pad_token_id=tokenizer.pad_token_id,
                stopping_criteria=StoppingCriteriaList([stopped]),
                **drawn,
                **options,
            )[:, start:]
        ends = self._ends()
        found = []
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        for row, text, lost in zip(ids.tolist(), texts, looping.tolist(), strict=True):
            at = min((text.index(one) for one in stop if one in text), default=None)
            finished = at is not None or (not lost and bool(ends & set(row[int(self.encoder_decoder) :])))
            found.append(Completion(text if at is None else text[:at], finished))
        return found

    def _longest(self) -> int | None:
        """Tokens that a sequence-to-sequence model reads at most, None if it says of no limit."""
        from transformers.tokenization_utils_base import LARGE_INTEGER  # a tokenizer without a limit has more than this

        limits = (self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None))
        known = [one for one in limits if one and one < LARGE_INTEGER]
        return int(min(known)) if known else None

    def _ends(self) -> set[int]:
        ends = self.model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or ())
        return {*ends, self.tokenizer.eos_token_id} - {None}

    def next_of(self, prompts: Sequence[str], choices: Sequence[str]) -> torch.Tensor:
        """Probabilities (n, c) of the choices as the next token, out of the choices alone; float32 on the CPU.

        A choice counts by its first token after the prompt's end; a prompt that gives the choices nothing (a NaN, or
        nothing but zeros) has a row of NaN.
        """
        return self.next_after(prompts, ("",), choices)[0]

    @torch.inference_mode()
    def next_after(self, prompts: Sequence[str], endings: Sequence[str], choices: Sequence[str]) -> list[torch.Tensor]:
        """The same (n, c) for each way to go on after the prompts, which are read once for all of them."""
        batch = self._begun(prompts, max(map(len, map(self.tokenizer.tokenize, endings))))
        known = batch["past_key_values"].get_seq_length() if "past_key_values" in batch else 0
        mask = batch["attention_mask"]
        batch["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, known:]
        batch["input_ids"] = batch["input_ids"][:, known:]
        read = self.model(**batch, use_cache=True, logits_to_keep=1)
        found = []
        for ending in endings:
            logits = read.logits
            if ending:
                ids = self.tokenizer(ending, add_special_tokens=False, return_tensors="pt")["input_ids"]
                ids = ids.to(mask.device).expand(len(mask), -1)
                longer = torch.cat([mask, torch.ones_like(ids)], dim=1)
                logits = self.model(
                    input_ids=ids,
                    attention_mask=longer,
                    logits_to_keep=1,
                    use_cache=True,
                    position_ids=(longer.cumsum(dim=1) - 1)[:, -ids.shape[1] :],
                    past_key_values=copy.deepcopy(read.past_key_values),
                ).logits
            wanted = [self._first_token(prompts[0] + ending, one) for one in choices]
            chosen = torch.softmax(logits[:, -1].float(), dim=-1)[:, wanted].cpu()
            found.append(chosen / chosen.sum(dim=-1, keepdim=True))
        return found

    def _first_token(self, prompt: str, choice: str) -> int:
        before = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        after = self.tokenizer(prompt + choice, add_special_tokens=False)["input_ids"]
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        return int(after[same])


def repeats(ids: torch.Tensor) -> torch.Tensor:
    """Whether each row (n, l) ends in the same up to 8 tokens at least six times over, and for 24 tokens; (n,)."""
    found = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for size in range(1, LONGEST + 1):
        length = max(TIMES * size, TAIL)
        if ids.shape[1] >= length:
            tail = ids[:, -length:]
            found |= (tail[:, size:] == tail[:, :-size]).all(dim=1)
    return found


def _common(rows: list[list[int]]) -> int:
    """How many tokens all rows begin with; each keeps at least one of its own."""
    least = min(map(len, rows)) - 1
    return next((i for i in range(least) if len({row[i] for row in rows}) > 1), least)
