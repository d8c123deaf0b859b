"""Stage 1: the multilingual path is anchored to the English one while the actor learns to choose translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from xalign_models.errors import ModelError
from xalign_models.training.lira import actor as actors
from xalign_models.training.lira.adaptor import CollapseMonitor, anchor_loss, cosines
from xalign_models.training.lira.candidates import Candidates, CandidateSource
from xalign_models.training.lira.config import ArcaConfig
from xalign_models.training.lira.data import MEASURED, Text
from xalign_models.training.lira.loop import Metrics
from xalign_models.training.lira.module import LiRA, unpack
from xalign_models.training.lira.network import Choice

CENTRED = 2048
"""Most translations, about, whose mean token is the origin."""


class Examples(NamedTuple):
    """Texts with their candidates, made beforehand."""

    texts: list[str]
    languages: list[str]
    candidates: Candidates

    @classmethod
    def of(cls, texts: Sequence[Text], source: CandidateSource) -> Examples:
        """Texts with the candidates that a source gives or makes."""
        words, languages = [one.text for one in texts], [one.language for one in texts]
        return cls(words, languages, source(words, languages))

    def rows(self, chosen: Sequence[int]) -> Examples:
        """Some of them."""
        return Examples(
            [self.texts[i] for i in chosen], [self.languages[i] for i in chosen], self.candidates.rows(chosen)
        )


class Arca:
    """The stage, for :func:`xalign_models.training.lira.loop.run`.

    Args:
        module: The model; its encoder, adaptor and actor are trained in place.
        examples: To train on.
        held_out: To measure on; texts that no example has.
        config: Hyperparameters.

    Raises:
        ModelError: No example has a translation.
    """

    def __init__(self, module: LiRA, examples: Examples, held_out: Examples, config: ArcaConfig) -> None:
        if not examples.candidates.mask.any():
            raise ModelError(
                "No text of stage arca has a translation: name design.translators, or arca.extra, e.g. "
                "--set 'arca.extra=[reference:ntrex]'."
            )
        self.module, self.examples, self.config = module, examples, config
        self.held_out = held_out.rows(range(0, len(held_out.texts), max(1, len(held_out.texts) // MEASURED)))
        self.epochs, self.max_steps, self.seed = config.epochs, config.max_steps, config.seed
        network = module.network
        if module.design.centre:
            self._fit_centre()
        network.actor.requires_grad_(True)
        network.adaptor.requires_grad_(True)
        trained = list(_encoder_weights(network.encoder, config)) if config.encoder_rate else []
        for name, weight in trained:
            weight.requires_grad_(True)
            network.tuned.add(f"encoder.{name}")
        parts: list[tuple[Sequence[nn.Parameter], float]] = [
            (list(network.actor.parameters()), config.actor_rate),
            ([weight for _, weight in trained], config.encoder_rate),
            (list(network.adaptor.parameters()), config.adaptor_rate),
        ]
        self.optimizers = [torch.optim.Adam(weights, rate) for weights, rate in parts if weights]
        self.monitor = CollapseMonitor()
        self.draws = torch.Generator().manual_seed(config.seed)
        self._batches: list[list[int]] = []
        self._meanings = self._translated_meanings()

    def _fit_centre(self) -> None:
        """On translations of the training's texts."""
        given, device = self.examples.candidates, self.module.network.device
        usable = [row[k] for row, mask in zip(given.texts, given.mask.tolist(), strict=True)
                  for k, there in enumerate(mask) if there]  # fmt: skip
        some = usable[:: max(1, len(usable) // CENTRED)]
        tokenized = (self.module.tokenize_english(some[start : start + self.config.batch_size])
                     for start in range(0, len(some), self.config.batch_size))  # fmt: skip
        self.module.network.fit_centre(
            {name: one.to(device) for name, one in batch.items() if torch.is_tensor(one)} for batch in tokenized
        )

    def batches(self, epoch: int) -> int:
        """The examples in a new order."""
        order = torch.randperm(
            len(self.examples.texts), generator=torch.Generator().manual_seed(self.seed * 1009 + epoch)
        ).tolist()
        size = self.config.batch_size
        self._batches = [order[start : start + size] for start in range(0, len(order), size)]
        return len(self._batches)

    def step(self, index: int) -> Metrics:
        """Eq. 9: ``L = L_RL + eta L_anchor``, the anchor on the candidate that was drawn."""
        self.module.network.train()
        batch = self.examples.rows(self._batches[index])
        choice, mask, scores = self._choose(batch)
        action = actors.sample(choice.log_probabilities, self.draws)
        rewards = actors.reward(scores, choice.similarity, self.config.reward)
        policy = actors.policy_loss(choice.log_probabilities, action, rewards, mask, baseline=self.config.baseline)
        some = mask.any(dim=1)  # a text without a translation has nothing to be anchored to
        multilingual, english = self._sentences(choice, action)
        anchor = anchor_loss(multilingual[some], english[some])
        loss = policy + self.config.eta * anchor
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.config.clip)
            optimizer.step()
        self.monitor.update(multilingual[some], english[some])
        contested = mask.sum(dim=1) > 1
        taken = rewards.gather(1, action[:, None])[:, 0][contested]
        return {
            "loss": float(loss.detach()),
            "policy_loss": float(policy.detach()),
            "anchor_loss": float(anchor.detach()),
            "reward": float(taken.mean()) if len(taken) else None,
        }

    def _choose(self, batch: Examples) -> tuple[Choice, Tensor, Tensor]:
        """Both paths of a batch, the mask and the scores of its candidates."""
        network, module = self.module.network, self.module
        features = module.tokenize_candidates(batch.candidates)
        features |= {f"text.{name}": one for name, one in module.tokenize_texts(batch.texts).items()}
        features = {name: one.to(network.device) if torch.is_tensor(one) else one for name, one in features.items()}
        text, candidates, scores, mask = unpack(features)
        return network.choose(text, candidates, scores, mask), mask, scores

    def _sentences(self, choice: Choice, action: Tensor) -> tuple[Tensor, Tensor]:
        """Eq. 4 of both paths, (n, D) each, of the chosen candidates."""
        rows = torch.arange(len(action), device=action.device)
        pool = self.module.network.adaptor.pool
        return pool(choice.multilingual), pool(choice.english[rows, action])

    @torch.no_grad()
    def _translated_meanings(self) -> tuple[Tensor, Tensor]:
        """Eq. 27 of the held-out texts (n, d) and of their candidates (n, K, d), which training does not change."""
        size, network = self.config.batch_size, self.module.network
        network.eval()
        own, others = list[Tensor](), list[Tensor]()
        for start in tqdm(range(0, len(self.held_out.texts), size), desc="measure", delay=2, disable=None):
            batch = self.held_out.rows(range(start, min(start + size, len(self.held_out.texts))))
            flat = [text for row in batch.candidates.texts for text in row]
            for texts, found in ((batch.texts, own), (flat, others)):
                features = {
                    name: one.to(network.device)
                    for name, one in self.module.tokenize_english(texts).items()
                    if torch.is_tensor(one)
                }
                found.append(network.english_sentence(features).cpu())
        if not own:
            return torch.zeros(0, 1), torch.zeros(0, 1, 1)
        meanings = torch.cat(own)
        return meanings, torch.cat(others).reshape(len(meanings), -1, meanings.shape[1])

    @torch.no_grad()
    def measure(self, epoch: int) -> Metrics:
        """Similarity, mismatched similarity, eps1 (eq. 25), eps2 (eq. 28), reward and choice on the held-out texts."""
        self.module.network.eval()
        trained = {"train_similarity": self.monitor.matched, "train_mismatched": self.monitor.mismatched}
        collapsed = self.monitor.collapsed
        self.monitor.reset()
        if not self.held_out.texts:
            return {**trained, "collapsed": collapsed}
        monitor, among, size = CollapseMonitor(), CollapseMonitor(), self.config.batch_size
        distances, drifts, rewards, chosen = [], [], [], []
        for start in range(0, len(self.held_out.texts), size):
            rows = list(range(start, min(start + size, len(self.held_out.texts))))
            choice, mask, scores = self._choose(self.held_out.rows(rows))
            some = mask.any(dim=1)
            best = choice.log_probabilities.argmax(dim=1)
            multilingual, english = self._sentences(choice, best)
            monitor.update(multilingual[some], english[some])
            among.update(english[some], english[some])
            distances.append((multilingual - english).norm(dim=1)[some])
            own, others = (one[rows] for one in self._meanings)
            drifts.append((1 - cosines(own, others[torch.arange(len(rows)), best.cpu()]))[some.cpu()])
            gained = actors.reward(scores, choice.similarity, self.config.reward)
            rewards.append(gained.gather(1, best[:, None])[:, 0][some])
            chosen += best[some].tolist()
        shares = [chosen.count(k) / len(chosen) for k in range(self.held_out.candidates.mask.shape[1]) if chosen]
        found = {name: float(torch.cat(values).mean()) for name, values in
                 (("epsilon_1", distances), ("epsilon_2", drifts), ("held_out_reward", rewards))}  # fmt: skip
        return {**trained, "similarity": monitor.matched, "mismatched": monitor.mismatched,
                "english_mismatched": among.mismatched, **found,
                "chosen": shares, "collapsed": collapsed or monitor.collapsed}  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Trained weights, optimisers, and the actor's draws."""
        network = self.module.network
        weights = {name: one.detach() for name, one in network.named_parameters() if one.requires_grad}
        return {"weights": weights, "optimizers": [one.state_dict() for one in self.optimizers],
                "draws": self.draws.get_state(), "sums": vars(self.monitor)}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.module.network.load_state_dict(state["weights"], strict=False)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.draws.set_state(state["draws"])
        vars(self.monitor).update(state["sums"])


def _encoder_weights(encoder: nn.Module, config: ArcaConfig) -> list[tuple[str, nn.Parameter]]:
    """The weights of the encoder that are trained: all floating ones, or those that are no token embeddings."""
    table = encoder.model.get_input_embeddings().weight  # type: ignore[operator,union-attr]
    return [
        (name, weight) for name, weight in encoder.named_parameters() if config.train_embeddings or weight is not table
    ]


def history(log: Sequence[Metrics]) -> list[Metrics]:
    """The epochs of a log."""
    return [{key: value for key, value in entry.items() if key != "kind"} for entry in log if entry["kind"] == "epoch"]
