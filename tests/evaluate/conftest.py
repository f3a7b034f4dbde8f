"""SmolLM2's tests need the shipped drafter: they are collected, and may then fail but not be skipped, once it is there.

Remove this file when the weights are committed.
"""

from spd_lib.draft.shipped import WEIGHTS

collect_ignore = [] if (WEIGHTS / "smollm2").is_dir() else ["test_smollm2.py"]
