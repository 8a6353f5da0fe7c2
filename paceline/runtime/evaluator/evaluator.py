"""The evaluator: it looks at the model from time to time, on a copy, and saves the last one.

    phase of the run   what it does
    training           looks, evaluates, rests (`rest_s`), and again; has a checkpoint captured when one is due, and
                       writes it when that is done, maybe some evaluations later
    target reached     saves that model, tells the coordinator, looks for the first snapshot that reached it
    finishing          reads the last model, saves it, evaluates it, writes the last checkpoint
    failed             saves the model that was evaluated last (`keep`)

It asks the servers, or the workers that still train where the model lives there; those answer from the thread that
moves bytes, so no worker loop waits for an evaluation. A worker that does not answer is left out until it does. A
model that has NaN or infinity ends the run: it would stay so, and the last finite one is saved. An accuracy belongs
to the moment at which the weights were asked for. Towards a target accuracy it also keeps snapshots of the model
between evaluations and, once the target is reached, looks for the first of them that reached it. A run that ends for
its target leaves that model, which is saved before anybody hears of it; every other run leaves the last one.

An evaluator that is lost is followed by another one, which knows nothing of what the one before it had in memory. So
the last model is saved before it is evaluated.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from paceline.checkpoint.folder_store import MODEL
from paceline.config import Config
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party
from paceline.core.errors import Diverged, PacelineError, PeerLost, Undone
from paceline.core.sharding import NOWHERE
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.plain_names import plain_state
from paceline.engine.vectors.flat import Flat, finite
from paceline.live.control.session import Session
from paceline.live.host_info import cores
from paceline.live.node.published_state import STATISTICS, PublishedState
from paceline.live.state.current_model import final_model, model_now
from paceline.live.state.responsive_reads import Answering, NoAnswer
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.checkpointing.writer import CheckpointWriter, not_saved, say_not_saved
from paceline.runtime.evaluator.candidate_models import CandidateModels, ModelSnapshot
from paceline.runtime.evaluator.subject import Subject, subject_of
from paceline.runtime.run_folder import fallback_folder
from paceline.runtime.run_folder.evaluation_times import rest_s
from paceline.runtime.run_folder.lock_file import LockFence
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.batchnorm_average import statistics_of
from paceline.runtime.worker.steps.untrained_state import RestReader

DIVERGED = "the model has diverged: it has NaN or infinity"
WAY_OUT = "lower --lr or give --clip-norm"
CAPTURED = object()
"""Wakes the evaluator: a checkpoint has been captured, and is to be written."""
GLANCING = 0.02
"""The largest share of its time that the evaluator spends on looks between evaluations."""


def save_model(model: nn.Module, path: Path) -> None:
    """Saves the model as safetensors that load into the plain module, all or nothing. Raises OSError."""
    # Written beside it and renamed: a reader sees the old file or the new one, and never half of one.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: tensor.clone().contiguous() for name, tensor in plain_state(model).items()}, draft)
        os.replace(draft, path)
    except SafetensorError as error:
        raise _os_error(error) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _os_error(error: SafetensorError) -> OSError:
    """Returns the OSError that the library describes as "... (os error 28)"."""
    code = re.search(r"os error (\d+)|code: (\d+)", str(error))
    number = int(code[1] or code[2]) if code else 0
    return OSError(number, os.strerror(number) if number else str(error))


class Evaluator:
    """Looks at the model, evaluates it and saves it."""

    def __init__(self, config: Config, spec: ProcessSpec, session: Session, subject: Subject) -> None:
        self._config, self._session, self._node = config, session, session.node
        self._subject = subject
        self._module, self._shown, self._flat = subject.module, subject.shown, subject.flat
        self._buffers = Buffers(self._module, config.model.buffers)
        self._spec = spec
        self._fence = LockFence(Path(config.run.out), spec.token)
        self._candidates = CandidateModels()
        self._target = config.stop.target_accuracy
        self._next_glance = 0.0
        self._answering = Answering(session.node)
        self._judged_at: float | None = None  # which moment's model the module has
        self._accuracy: float | None = None  # of the newest evaluation
        self._reached_at = math.inf  # from when on the model that reached the target is

    def join(self) -> None:
        """Joins the run, up to the start of training."""
        session, spec = self._session, self._spec
        session.connect(())
        self._reach_others()
        plan = session.expect(control.Plan)
        scheme = Recipe.from_json(plan.optimizer).make_scheme()
        self._model_of = scheme.model_of(spec.servers)
        self._node.place(None, plan.layout)
        self._node.calls.retries = plan.replaced
        start = open_at(self._config, self._spec.resume)
        self._begun_at = start.samples
        layout = plan.layout if self._model_of == "servers" else NOWHERE
        self._keeper = CheckpointWriter(
            self._config,
            session,
            layout,
            self._flat,
            self._module,
            start.samples,
            spec.store_secrets,
            begun_with=start.done,
            optimizer=self._subject.optimizer,
            fence=self._fence,
        )
        self._take_rest()
        session.expect(control.Go)
        session.reports.begin()

    def _take_rest(self) -> None:
        """Takes what is not trained from the first worker that answers, as the workers take it from worker 0."""
        reader = RestReader(self._session, self._flat.rest)
        for rank in self._here:
            with contextlib.suppress(PeerLost):
                reader.take(rank)
                return

    def _reach_others(self) -> None:
        """Connects to servers and workers. A later incarnation connects to all that are present, since none of them
        calls it."""
        session = self._session
        lost = (PeerLost,) if session.late else ()  # a server that is being replaced
        for who in map(party.server, range(self._spec.servers)):
            with contextlib.suppress(*lost):
                session.reach(who)
        for who in map(party.worker, range(self._spec.workers)):
            if not session.late:
                with contextlib.suppress(PeerLost):  # it is lost or expelled already, and the run goes on
                    session.reach_if_there(who)
            elif session.has(who) and session.can_be_called(who.index):
                with contextlib.suppress(PeerLost):  # it is lost just now
                    session.reach(who)

    def judge_now(self) -> None:
        """Evaluates the model as it is now."""
        before = self._candidates.turn()
        try:
            self._accuracy = accuracy = self._judge(self._look(), self.glance)
        except (NoAnswer, Undone):
            return  # no worker answers, or a server was replaced meanwhile: the next look will tell
        if self._target and accuracy >= self._target:
            self._target = 0.0
            self._first_of(before)

    def keep_checkpoint(self) -> None:
        """Writes the checkpoint that has been captured, if one has, and begins the next one if it is due."""
        if self._accuracy is None:
            return
        self._keeper.write(self._accuracy)
        if self._keeper.due and self._answering.all_answer(self._here):
            self._keeper.begin(lambda: self._session.mailbox.put(CAPTURED))

    def judge_last(self, finish: control.Finish) -> None:
        """Saves the last model, unless the one that reached the target is kept, and evaluates it: nobody trains now."""
        if self._accuracy is not None:
            self._keeper.finish(self._accuracy)  # soon: nobody waits for the end of a round any more
        snapshot = None
        with contextlib.suppress(Undone):  # a server was replaced meanwhile: the model that was loaded last is saved
            snapshot = self._look(finish.holder)
            self._load(snapshot)
        if not finish.target_reached and self._judged_at is not None:
            self.save()
        if snapshot is not None and self._spec.judges:
            self._keeper.save(self._judge_loaded(snapshot))

    def glance(self) -> None:
        """Keeps a snapshot, if a target is still to be reached and it is time for one."""
        now = time.monotonic()
        if self._target and now >= self._next_glance:
            self._candidates.add(self._look())
            after = time.monotonic()
            self._next_glance = after + max(self._config.evaluation.every, (after - now) / GLANCING)

    def finish_within(self, seconds: float) -> control.Finish | None:
        """Rests for `seconds`, except for snapshots; returns the coordinator's Finish, if it comes."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            nap = min(left, self._next_glance - time.monotonic()) if self._target else left
            told = self._session.within(max(0.0, nap))
            if told is CAPTURED:
                self.keep_checkpoint()
                continue
            if isinstance(told, loop_messages.SaveNow):
                self.save_soon()
                return None
            finish: control.Finish | None = told
            if finish is not None or left <= 0:
                return finish
            with contextlib.suppress(Undone, NoAnswer):
                self.glance()

    def finish_before(self, exchanges: int) -> control.Finish | None:
        """Waits until the workers have made so many exchanges, or a checkpoint is asked for; returns Finish, if it
        comes."""
        while (told := self._session.until_exchanges(exchanges)) is CAPTURED:
            self.keep_checkpoint()
        if isinstance(told, loop_messages.SaveNow):
            self.save_soon()
            return None
        finish: control.Finish | None = told
        return finish

    def save_soon(self) -> None:
        """Writes a checkpoint with the next evaluation."""
        self._keeper.asked = True

    @property
    def to_target(self) -> bool:
        """Returns True while an accuracy is still to be reached."""
        return bool(self._target)

    def _look(self, holder: int | None = None) -> ModelSnapshot:
        """Returns the model of this moment, or, with the last model's `holder`, the last one. Raises NoAnswer or
        Undone."""
        at, samples = self._node.now(), max(self._begun_at, self._session.total_samples)
        session, model_of, workers = self._session, self._model_of, self._spec.workers
        if holder is None:
            weights = model_now(session, self._answering, model_of, workers)
        else:
            weights = final_model(session, model_of, holder, workers)
        return ModelSnapshot(at=at, samples=samples, weights=weights, buffers=self._look_at_buffers())

    def _look_at_buffers(self) -> Flat | None:
        """Returns batch-norm statistics: the first worker's, or the mean over the workers by samples, by the policy."""
        if not len(self._buffers):
            return None
        return statistics_of(self._buffers, self._here, self._statistics_of_worker)

    def _statistics_of_worker(self, rank: int) -> PublishedState:
        return self._node.of_length(rank, self._answering.read_published(rank, STATISTICS), len(self._buffers))

    @property
    def _here(self) -> list[int]:
        """Returns the ranks of the workers that are not lost."""
        return [rank for rank in range(self._spec.workers) if rank not in self._session.lost_ranks]

    def _judge(self, snapshot: ModelSnapshot, between: Callable[[], None] = lambda: None) -> float:
        """Evaluates a snapshot, tells the coordinator, and returns its accuracy. Raises Diverged where it is not
        finite.

        The earliest model that reached the target is saved before the coordinator hears of it.
        """
        self._load(snapshot)
        return self._judge_loaded(snapshot, between, keeps=True)

    def _load(self, snapshot: ModelSnapshot) -> None:
        """Loads a snapshot into the modules. Raises Diverged where it is not finite."""
        if not (finite(snapshot.weights) and (snapshot.buffers is None or finite(snapshot.buffers))):
            raise Diverged(self._what_diverged(snapshot.at))
        self._flat.load(snapshot.weights)
        if snapshot.buffers is not None:
            self._buffers.load(snapshot.buffers)
        if self._shown is not self._module:
            self._shown.load_state_dict(self._module.state_dict())
        self._judged_at = snapshot.at

    def _judge_loaded(
        self, snapshot: ModelSnapshot, between: Callable[[], None] = lambda: None, *, keeps: bool = False
    ) -> float:
        """Evaluates the loaded model, and reports it; `keeps`: saves it if it is the earliest that reached the
        target."""
        if self._subject.test is None:
            return 0.0
        began = time.monotonic()
        accuracy, loss = self._subject.test(between)
        target = self._config.stop.target_accuracy
        if keeps and target and accuracy >= target and snapshot.at < self._reached_at:
            self._reached_at = snapshot.at
            self._save(self._shown)  # a glance between two batches changes nothing of it
        seconds = time.monotonic() - began
        self._session.tell(
            control.EvaluationReport(
                at=snapshot.at,
                samples=snapshot.samples,
                accuracy=accuracy,
                loss=loss,
                seconds=seconds,
                chance=self._subject.chance,
            )
        )
        return accuracy

    def _what_diverged(self, at: float) -> str:
        """Returns the line for the user. `keep` saves the model that was evaluated last, as for every run that
        fails."""
        left = "none was finite before it, so no model was saved"
        if self._judged_at is not None:
            left = f"model.safetensors is the last finite one, of {self._judged_at:.1f} s"
        return f"{DIVERGED} after {at:.1f} s; {left}; {WAY_OUT}"

    def _first_of(self, snapshots: list[ModelSnapshot]) -> None:
        """Evaluates snapshots up to the first that reached the target, while the coordinator stops the workers."""
        target = self._config.stop.target_accuracy
        torch.set_num_threads(cores())  # nobody else needs them any more
        next((s for s in snapshots if self._judge(s) >= target), None)

    def save(self) -> None:
        """Saves the module. If its folder cannot be written, another one takes it; if no disk does, the run ends
        without it."""
        self._save(self._module)

    def _save(self, module: nn.Module) -> None:
        out = Path(self._config.run.out)
        self._fence.check()
        try:
            line = fallback_folder.put(out, MODEL, self._spec.token, functools.partial(save_model, module))
        except OSError as error:
            not_saved(self._session, MODEL, error)
        else:
            if line:
                say_not_saved(self._session, line)

    def keep(self) -> None:
        """Saves the model that was evaluated last, if any was: the run has failed, and nobody else saves one."""
        if self._judged_at is not None:
            self._save(self._shown)  # a checkpoint may have put another one into the other module


def evaluate(config: Config, spec: ProcessSpec, session: Session, subject: Subject | None = None) -> None:
    """Evaluates `subject`, by default the model of `config`, until training is over; then once more, and saves.

    Raises PacelineError when the run fails, after saving the model that was evaluated last.
    """
    evaluator = Evaluator(config, spec, session, subject or subject_of(config))
    evaluator.join()
    try:
        _evaluate(evaluator, config, session)
    except PacelineError:
        with contextlib.suppress(PacelineError):  # nobody may be left to be told that the disk is full
            evaluator.keep()
        raise


def _evaluate(evaluator: Evaluator, config: Config, session: Session) -> None:
    """Alternates evaluations and rests until the coordinator sends Finish.

    With `--eval-every-exchanges` it rests until the workers have made so many more, too. Then the first evaluation is
    that of the first such count.
    """
    rest, step = 0.0, config.evaluation.every_exchanges
    due = step
    while (finish := evaluator.finish_within(rest)) is None:
        if step and (finish := evaluator.finish_before(due)) is not None:
            break
        due = session.total_exchanges // step * step + step if step else 0
        began = time.monotonic()
        evaluator.judge_now()
        rest = rest_s(time.monotonic() - began, config.evaluation.every, to_target=evaluator.to_target)
        evaluator.keep_checkpoint()
    evaluator.judge_last(finish)
    session.done()
