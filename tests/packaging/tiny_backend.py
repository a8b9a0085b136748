"""Builds wheels of a few text files, by hand.

The tests call it for what an index holds; inside a wheel of its own it is also the
build backend of the small latprof that they set up.
"""

from pathlib import Path
from zipfile import ZipFile

TAG = "py3-none-any"
# What of the checkout the program brings below share/.
SHARED = {
    "packaging/latprof.1": "man/man1",
    "packaging/systemd/latprof-agent.service": "latprof/systemd",
    "packaging/systemd/agent.toml": "latprof/systemd",
}


def write_wheel(folder, name, files, version="1.0", needs=(), scripts=""):
    """Write a wheel of `files`, a dict of path and text; returns its path."""
    about = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    about += [f"Requires-Dist: {need}" for need in needs]
    wheel = ["Wheel-Version: 1.0", "Root-Is-Purelib: true", f"Tag: {TAG}"]
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": "\n".join(about) + "\n",
        f"{info}/WHEEL": "\n".join(wheel) + "\n",
        f"{info}/entry_points.txt": scripts,
    }
    files[f"{info}/RECORD"] = "".join(
        f"{file},,\n" for file in [*files, f"{info}/RECORD"]
    )
    path = Path(folder) / f"{name}-{version}-{TAG}.whl"
    with ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the program in the current folder: what pip calls."""
    files = {}
    for package in (Path("agent"), Path("analysis")):
        for path in package.rglob("*.py"):
            files[str(path.relative_to(package))] = path.read_text()
    for name, shared in SHARED.items():
        data = f"latprof-1.0.data/data/share/{shared}/{Path(name).name}"
        files[data] = Path(name).read_text()
    scripts = "[console_scripts]\nlatprof = latprof_agent.cli:main\n"
    path = write_wheel(
        wheel_directory, "latprof", files, needs=["needed"], scripts=scripts
    )
    return path.name
