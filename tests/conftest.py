"""Settings of the whole test run: threads, hypothesis, and what a skip means in CI."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

# The same cases every time; HYPOTHESIS_PROFILE=explore looks for new ones.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.register_profile("explore", deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

IN_CI = os.environ.get("CI") == "true"


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"In CI nothing may be skipped but what needs a GPU. {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator:
    report = (yield).get_result()
    if item.get_closest_marker("gpu") is None:
        _fail_if_skipped(report)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator:
    _fail_if_skipped((yield).get_result())
