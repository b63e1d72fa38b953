"""No toggle, no trace: what a training could notice of us is compared with a bare run, one way of looking a test.

The shapes' own test_untouched_equals_bare covers losses, weights, generators, samples, streams and exit status;
here stand the stricter ways of looking: warnings as errors, graph counts, and a process that looks at itself.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.outcome import Outcome, difference
from support.pool import Job, Pool

WARNINGS_ARE_ERRORS = tuple(
    Job(trainer, (), before=("-W", "error"))
    for trainer in ("plain.py", "augment.py", "batch_sampler.py", "validation.py", "compiled.py")
)
SELF_PORTRAIT = Job("self_portrait.py", ())
TORCH_LOG = re.compile(rb"^[WEI]\d{4} [\d:.]+ \d+ ", re.MULTILINE)
INDUCTOR = Job("compiled.py", (), env=(("BACKEND", "inductor"),))
GRAPHS = tuple(Job(trainer, ()) for trainer in ("compiled.py", "compiled_part.py", "compiled_inplace.py"))


def bare_of(job: Job) -> Job:
    return Job(job.trainer, None, job.env, job.args, job.before)


def both(pool: Pool, job: Job) -> tuple[Outcome, Outcome]:
    return pool.result(job), pool.result(bare_of(job))


def needs(test: Any) -> Any:
    test.needs = lambda job: [job, bare_of(job)]
    return test


@pytest.mark.parametrize("job", WARNINGS_ARE_ERRORS, ids=lambda job: job.trainer)
@needs
def test_warnings_as_errors(pool: Pool, job: Job) -> None:
    under, bare = both(pool, job)
    assert (under.status, bare.status) == (0, 0), under.text[-2000:]
    assert under.output == bare.output, difference(under, bare)


@pytest.mark.parametrize("job", [SELF_PORTRAIT], ids=lambda job: job.trainer)
@needs
def test_a_process_that_looks_at_itself(pool: Pool, job: Job) -> None:
    """Filters, hooks, flags, signals, generators, threads before training, and what may be seen of the environment."""
    under, bare = both(pool, job)
    assert under.status == bare.status == 1
    assert under.output == bare.output, difference(under, bare)


@pytest.mark.parametrize("job", GRAPHS, ids=lambda job: job.trainer)
@needs
def test_graph_counts(pool: Pool, job: Job) -> None:
    """Dynamo made the same graphs of the same sizes, as often; and this could have failed."""
    under, bare = both(pool, job)
    ours, theirs = under.final, bare.final
    assert ours is not None and theirs is not None, under.text
    for count in ("graphs", "frames", "breaks", "unique_graphs"):
        assert ours[count] == theirs[count]
    assert len(theirs["graphs"]) >= 2
    assert under.output == bare.output, difference(under, bare)


@pytest.mark.long
@pytest.mark.parametrize("job", [INDUCTOR], ids=lambda job: job.trainer)
@needs
def test_inductor(pool: Pool, job: Job) -> None:
    under, bare = both(pool, job)
    assert under.status == bare.status == 0, under.text[-2000:]
    # torch's own log lines begin with the time and the process
    ours, theirs = (TORCH_LOG.sub(b"", outcome.output) for outcome in (under, bare))
    assert ours == theirs, difference(under, bare)
    assert b"FINAL" in ours
