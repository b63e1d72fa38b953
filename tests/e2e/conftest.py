"""The pool of runs for the end-to-end tests: what the chosen tests will need is begun before the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pool import Job, Pool

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for pooled runs come last: until then the pool works while others mostly wait for a screen."""
    here = [item for item in items if item.path.parent == HERE]
    order = iter(sorted(here, key=lambda item: hasattr(getattr(item, "function", None), "needs")))
    for item in here:
        if hasattr(getattr(item, "function", None), "needs"):
            # it may wait for every run announced before its own; each run has an end of its own
            item.add_marker(pytest.mark.timeout(3600))
    items[:] = [next(order) if item.path.parent == HERE else item for item in items]


@pytest.fixture(scope="session", autouse=True)
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Every test here that has parameters of type Job gets them run ahead, two at a time."""
    pool = Pool(tmp_path_factory.mktemp("pool"))
    for item in request.session.items:
        needs = getattr(getattr(item, "function", None), "needs", None)
        if needs:
            pool.announce(job for job in needs(**item.callspec.params) if isinstance(job, Job))
    yield pool
    pool.close()
