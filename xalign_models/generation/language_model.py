"""Text generation with a language model, greedy or sampled, up to a stop string; and next-token probabilities."""

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, StoppingCriteriaList
from transformers.tokenization_utils_base import LARGE_INTEGER

from xalign_models import assets
from xalign_models.backbones.checkpoint import open_pretrained
from xalign_models.device import pick_device
from xalign_models.specs import Dtype

CHECK_INTERVAL, CHECKED_TOKENS = 8, 24
"""Interval in tokens between searches for stop strings and loops, and number of last tokens to search."""
LONGEST_LOOP, REPETITIONS = 8, 6
"""Longest repeated sequence in tokens, and the number of repetitions that counts as a loop."""


class Completion(NamedTuple):
    """A completion of a prompt."""

    text: str
    """The text before the stop string."""
    finished: bool
    """Whether the model stopped by itself rather than at the limit."""


class LanguageModel:
    """A checkpoint with its language modelling head; weights are loaded on the first call that needs them.

    Args:
        model: Asset, directory or hub id.
        revision: Hub revision.
        device: cpu, cuda or mps; by default the best available.
        dtype: Type of weights and activations; by default bfloat16 on a GPU that supports it, else float32.
        encoder_decoder: Whether the model is sequence-to-sequence rather than causal.
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
        """Location of the checkpoint, and the fingerprint of its content."""
        return assets.resolve(self.name, self._revision)

    @cached_property
    def device(self) -> str:
        """The device that the model runs on."""
        return pick_device(self._device)

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer, padding on the left for a causal model."""
        tokenizer = open_pretrained(AutoTokenizer, self.resolved)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        tokenizer.padding_side = "right" if self.encoder_decoder else "left"
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The weights, on the device.

        Raises:
            AssetError: The checkpoint is unavailable or has another kind.
            ModelError: The checkpoint lacks weights, e.g. those of the head.
        """
        kind = AutoModelForSeq2SeqLM if self.encoder_decoder else AutoModelForCausalLM
        half = self.device.startswith("cuda") and torch.cuda.is_bf16_supported()
        dtype = self._dtype or (Dtype.BFLOAT16 if half else Dtype.FLOAT32)
        model = open_pretrained(kind, self.resolved, dtype=str(dtype))
        return model.to(self.device).eval()

    def chat(self, prompt: str) -> str:
        """The prompt as a user's turn if the checkpoint has a chat template, else unchanged."""
        if not self.tokenizer.chat_template:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        text: str = self.tokenizer.apply_chat_template(
            turn, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return text

    def tokenize(self, prompts: Sequence[str], limit: int | None = None) -> Any:
        """A padded batch on the device, without a second begin token if the prompts have one."""
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

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the checkpoint's content."""
        return self.resolved.fingerprint

    @property
    def chats(self) -> bool:
        """Whether the checkpoint has a chat template."""
        return bool(self.tokenizer.chat_template)

    def length(self, text: str) -> int:
        """Number of tokens of a text."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def release(self) -> None:
        """Free the memory of the weights, which are loaded again when needed."""
        if self.__dict__.pop("model", None) is not None and self.device.startswith("cuda"):
            torch.cuda.empty_cache()

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
        """Completions of prompts, padded to one batch; an endless repetition is cut short.

        Args:
            prompts: Prompts, or inputs of a sequence-to-sequence model, truncated to its maximum length.
            max_new_tokens: Maximum number of tokens of a completion.
            stop: Strings that end a completion; they are not part of it.
            temperature: 0 is greedy; otherwise tokens are sampled.
            seed: Seed of the sampling.
            **options: Other options of transformers' ``generate``.
        """
        batch = self.tokenize(prompts, self._longest() if self.encoder_decoder else None)
        start = 0 if self.encoder_decoder else batch["input_ids"].shape[1]
        tokenizer = self.tokenizer

        looping = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)

        def stopped(ids: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
            if (ids.shape[1] - start) % CHECK_INTERVAL:
                return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            if not self.encoder_decoder:
                looping.logical_or_(repeats(ids[:, start:]) & (ids[:, -1] != tokenizer.pad_token_id))
            tails = tokenizer.batch_decode(
                ids[:, max(start, ids.shape[1] - CHECKED_TOKENS) :], skip_special_tokens=True
            )
            ended = torch.tensor([any(string in tail for string in stop) for tail in tails], device=ids.device)
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
        completions = []
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        for row, text, lost in zip(ids.tolist(), texts, looping.tolist(), strict=True):
            at = min((text.index(string) for string in stop if string in text), default=None)
            finished = at is not None or (not lost and bool(ends & set(row[int(self.encoder_decoder) :])))
            completions.append(Completion(text if at is None else text[:at], finished))
        return completions

    def _longest(self) -> int | None:
        """Maximum number of input tokens of a sequence-to-sequence model; None if there is no limit."""
        limits = (self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None))
        finite = [limit for limit in limits if limit and limit < LARGE_INTEGER]  # a larger value means no limit
        return int(min(finite)) if finite else None

    def _ends(self) -> set[int]:
        ends = self.model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or ())
        return {*ends, self.tokenizer.eos_token_id} - {None}

    def next_of(self, prompts: Sequence[str], choices: Sequence[str]) -> torch.Tensor:
        """Probabilities (n, c) of the choices as the next token, normalised over the choices; float32 on the CPU.

        Each choice is represented by its first token after the prompt. A prompt whose probabilities of all choices are
        zero or NaN gets a row of NaN.
        """
        return self.next_after(prompts, ("",), choices)[0]

    @torch.inference_mode()
    def next_after(self, prompts: Sequence[str], endings: Sequence[str], choices: Sequence[str]) -> list[torch.Tensor]:
        """Like :meth:`next_of`, (n, c), after each of several endings of the prompts, which are read only once."""
        batch = self.tokenize(prompts)
        mask = batch["attention_mask"]
        batch["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        read = self.model(**batch, use_cache=True, logits_to_keep=1)
        probabilities = []
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
            choice_ids = [self._first_token(prompts[0] + ending, choice) for choice in choices]
            chosen = torch.softmax(logits[:, -1].float(), dim=-1)[:, choice_ids].cpu()
            probabilities.append(chosen / chosen.sum(dim=-1, keepdim=True))
        return probabilities

    def _first_token(self, prompt: str, choice: str) -> int:
        before = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        after = self.tokenizer(prompt + choice, add_special_tokens=False)["input_ids"]
        shared = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        return int(after[shared])


def repeats(ids: torch.Tensor) -> torch.Tensor:
    """Whether each row (n, l) ends in at least 6 repetitions, over at least 24 tokens, of up to 8 tokens; (n,)."""
    looping = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for size in range(1, LONGEST_LOOP + 1):
        length = max(REPETITIONS * size, CHECKED_TOKENS)
        if ids.shape[1] >= length:
            tail = ids[:, -length:]
            looping |= (tail[:, size:] == tail[:, :-size]).all(dim=1)
    return looping
