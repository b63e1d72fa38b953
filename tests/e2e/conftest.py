"""The pool of runs for the end-to-end tests: what the chosen tests will need is begun before the first of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.pool import Job, Pool


@pytest.fixture(scope="session")
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Every test here that has parameters of type Job gets them run ahead, two at a time."""
    pool = Pool(tmp_path_factory.mktemp("pool"))
    for item in request.session.items:
        needs = getattr(getattr(item, "function", None), "needs", None)
        if needs:
            pool.announce(job for job in needs(**item.callspec.params) if isinstance(job, Job))
    yield pool
    pool.close()
