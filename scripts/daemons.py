"""Daemons of a service that tests start for themselves. All of them end with this process, however it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

START_S = 90.0
END_S = 10.0
LOG_END_CHARS = 1500


class DaemonError(RuntimeError):
    """A daemon did not start. The message ends with the ends of its logs."""


class Daemons:
    """`service` is for messages. What a daemon prints goes to NAME.out in `directory`."""

    def __init__(self, service: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._service = service
        self._directory = directory
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def start(self, name: str, words: Sequence[str]) -> None:
        # Its own session: Ctrl-C reaches only this process, which ends the others in order.
        with (self._directory / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, name: str, by: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, by SIGKILL if it takes long. Nothing if it was not started."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(by)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()

    def end_all(self, by: Callable[[str], signal.Signals]) -> None:
        """Ends the last one first, each by the signal for its name."""
        for name in reversed(list(self._processes)):
            self.end(name, by(name))

    def wait(self, what: str, ready: Callable[[], bool], logs: Callable[[str], Iterable[Path]]) -> None:
        """Until `what` is ready; an error if one of the daemons ends before. `logs` are further ones for a name."""
        limit = time.monotonic() + START_S
        while not ready():
            ended = [
                (name, process.returncode) for name, process in self._processes.items() if process.poll() is not None
            ]
            if ended:
                name, status = ended[0]
                self._fail(name, f"ended with status {status} while {what} started", logs)
            if time.monotonic() > limit:
                self._fail(next(reversed(self._processes)), f"{what} did not start within {START_S:.0f} s", logs)
            time.sleep(0.2)

    def _fail(self, name: str, why: str, logs: Callable[[str], Iterable[Path]]) -> None:
        found = [log for log in (self._directory / f"{name}.out", *logs(name)) if log.exists()]
        text = "".join(f"{log.name}:\n{log.read_text(errors='replace')[-LOG_END_CHARS:]}\n" for log in found)
        raise DaemonError(f"{self._service}: {name} {why}\n{text}")
