"""The demo's photographs are files of scikit-image. Nothing of it is imported, so its dependencies are not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import images
images.COUNT = 12
images.CORRUPT = {3: "text"}
seen = []
index = images.make(Path(sys.argv[2]) / "images", lambda done, of: seen.append((done, of)))
made = json.loads(index.read_text())
assert [image["corrupt"] for image in made] == [n == 3 for n in range(12)], made
assert seen[-1] == (12, 12), seen
loaded = {name.split(".")[0] for name in sys.modules} & {"skimage", "scipy", "sklearn"}
assert not loaded, loaded
"""


def test_images_need_only_the_files_of_scikit_image(tmp_path):
    demo = Path(__file__).parents[2] / "demo"
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(demo), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
