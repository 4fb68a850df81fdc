"""penstock bench: one job of each benchmark, and the report of several repetitions."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys

import pytest
from penstock.bench import CASES, overlap, overlap_results, redistribute, redistribute_peers, runner
from penstock.bench.installation import Installation, Placement, installations
from penstock.cli import bench as cli
from penstock.cli import main
from penstock.error import Error

MPI = Installation("mpich", "/nowhere")
needs_mpi = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")


class Case:
    """Penstock is twice as fast as the peer, which cannot run on 4 ranks."""

    @staticmethod
    def programs(_mpi):
        return [runner.Program("other"), runner.Program("penstock", baselines=("other",))]


def test_repetitions_are_interleaved_and_summed_up(monkeypatch):
    jobs = []

    def launch(_case, mpi, program, _parameters, ranks):
        jobs.append((program.name, ranks))
        seconds = {"other": 4.0, "penstock": 2.0}[program.name] + len(jobs) / 100
        return [({"bytes": 8}, [seconds])]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=3)
    assert [name for name, _ in jobs] == ["other", "penstock", "penstock", "other", "other", "penstock"]
    (row,) = report.rows
    assert row.setting == {"ranks": 2, "bytes": 8}
    assert row.samples["other/mpich"] == [4.01, 4.04, 4.05]
    assert row.seconds == {"other/mpich": 4.04, "penstock/mpich": 2.03}
    assert row.speedup == {"penstock/mpich : other/mpich": pytest.approx(4.04 / 2.03)}
    assert "1.99" in runner.table(report)
    assert json.loads(runner.as_json(report))["rows"][0]["speedup"]


def test_an_interrupt_ends_the_repetitions(monkeypatch):
    jobs = iter(range(100))

    def launch(*given):
        if next(jobs) == at:
            raise KeyboardInterrupt
        return [({"bytes": 8}, [1.0])]

    monkeypatch.setattr(runner, "_launch", launch)
    at = 3  # the second job of the second repetition
    told: list[str] = []
    report = runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=9, tell=told.append)
    assert report.parameters["repetitions"] == 1
    assert sorted(len(samples) for samples in report.rows[0].samples.values()) == [1, 2]
    assert "ended in repetition 2 of 9" in told[-1]
    jobs, at = iter(range(100)), 1
    with pytest.raises(KeyboardInterrupt):
        runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=9)


def test_what_cannot_run_is_left_out_and_said(monkeypatch):
    def launch(_case, _mpi, program, _parameters, _ranks):
        return "no such library" if program.name == "other" else [({"bytes": 8}, [1.0])]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Case, {}, ranks=[2, 4], mpis=[MPI], repetitions=2)
    assert report.left_out == {"other/mpich": "on 2 ranks: no such library"}
    assert all(list(row.seconds) == ["penstock/mpich"] and not row.speedup for row in report.rows)
    assert "other/mpich left out: on 2 ranks: no such library" in runner.table(report)
    assert json.loads(runner.as_json(report))["left_out"] == report.left_out


def test_missing_peers_settings_and_repetitions_are_said(monkeypatch):
    class Partly(Case):
        @staticmethod
        def missing(_mpi):
            return {"third": "its library was not found; install libthird"}

    def launch(_case, _mpi, program, _parameters, _ranks):
        cannot = [({"split": 9, "cannot": "there are 2 levels"}, [])] if program.name == "penstock" else []
        return [({"bytes": 8}, [1.0]), *cannot]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Partly, {}, ranks=[1, 2], mpis=[MPI], repetitions=3, minutes=1e-9)
    assert report.left_out == {
        "third/mpich": "its library was not found; install libthird",
        "penstock/mpich (split 9)": "on 1 rank: there are 2 levels",
    }
    assert all(set(row.seconds) == {"other/mpich", "penstock/mpich"} for row in report.rows)
    text = runner.table(report)
    assert "third/mpich left out: its library was not found; install libthird" in text
    assert "penstock/mpich (split 9) left out: on 1 rank: there are 2 levels" in text
    assert "1 of 3 repetitions were made" in text
    with pytest.raises(Error, match=r"no peer 'third' here \(its library was not found; install libthird\)"):
        runner.run("case", Partly, {}, ranks=[1], mpis=[MPI], repetitions=1, programs=["third"])


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ValueError: no\n[mpiexec@n] Please see the FAQ page for debugging suggestions\n", "ValueError: no"),
        (
            "=   PID 1 RUNNING AT n\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)\n"
            "This typically refers to a problem with your application.\n",
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)",
        ),
        (
            "-----\nmpirun noticed that process rank 0 exited on signal 11 (Segmentation fault).\n-----\n",
            "mpirun noticed that process rank 0 exited on signal 11 (Segmentation fault).",
        ),
        ("There are not enough slots\n", "the job ended with status 3: There are not enough slots"),
        ("", "the job ended with status 3"),
    ],
)
def test_why_a_job_failed(output, reason):
    assert runner._reason("collectives", output, 3) == reason


def test_peers_can_be_chosen(monkeypatch):
    monkeypatch.setattr(runner, "_launch", lambda *_: [({"bytes": 8}, [1.0])])
    report = runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=1, programs=["penstock"])
    assert report.peers == ["penstock/mpich"]
    assert [list(row.seconds) for row in report.rows] == [["penstock/mpich"]]
    with pytest.raises(Error, match="no peer 'mine' here; there are other, penstock"):
        runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=1, programs=["penstock", "mine"])


def test_peers_prepare_and_stop_in_time(monkeypatch):
    class Prepared:
        @staticmethod
        def programs(_mpi):
            return [runner.Program("other"), runner.Program("penstock", once=True)]

        @staticmethod
        def prepare(parameters, jobs):
            ((_, (seconds,)),) = jobs.measure("other/mpich", parameters, 8)
            return {**parameters, "found_s": seconds}

        @staticmethod
        def summarize(report):
            return len(report.rows)

    given = []

    def launch(_case, mpi, program, parameters, ranks):
        given.append((program.name, mpi.name, ranks, parameters))
        return [({"bytes": 8}, [5.0])]

    monkeypatch.setattr(runner, "_launch", launch)
    mpis = [MPI, Installation("openmpi", "/elsewhere")]
    report = runner.run("case", Prepared, {"bytes": 8}, ranks=[2], mpis=mpis, repetitions=3, minutes=1e-9)
    assert report.peers == ["other/mpich", "penstock/mpich", "other/openmpi"]
    assert given[0] == ("other", "mpich", 8, {"bytes": 8})
    assert [job[:3] for job in given[1:]] == [("other", "mpich", 2), ("penstock", "mpich", 2), ("other", "openmpi", 2)]
    assert all(job[3] == {"bytes": 8, "found_s": 5.0} for job in given[1:])
    assert report.parameters["repetitions"] == 1
    assert report.summary == 1


def test_placement():
    bound, crowded = Placement(bound=True, yielding=False), Placement(bound=False, yielding=True)
    for name, flag in (("mpich", "-bind-to"), ("openmpi", "--bind-to")):
        mpi = Installation(name, "/prefix")
        assert mpi.launcher(3, bound)[1:] == ["-n", "3", flag, "core"]
        assert mpi.launcher(3, crowded)[1:] == ["-n", "3", flag, "none"]
        assert mpi.launcher(3) == ["/prefix/bin/mpiexec", "-n", "3"]
    assert Installation("openmpi", "").environment(crowded)["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert Installation("openmpi", "").environment(bound)["OMPI_MCA_mpi_yield_when_idle"] == "0"
    intel = Installation("impi", "/prefix").environment(crowded)
    assert (intel["MPI4PY_MPIABI"], intel["I_MPI_PIN"], intel["I_MPI_WAIT_MODE"]) == ("mpich", "0", "1")


def test_peers_of_another_mpi_are_not_loaded(tmp_path, monkeypatch):
    for name, soname in (("openmpi", "libmpi.so.40"), ("mpich", "libmpi.so.12")):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "lib" / soname).touch()
    library = tmp_path / "libcosta.so"
    library.write_bytes(b"\0libmpi.so.40\0")
    openmpi, mpich = (Installation(name, str(tmp_path / name)) for name in ("openmpi", "mpich"))
    assert redistribute_peers.is_linked_to(library, openmpi)
    assert not redistribute_peers.is_linked_to(library, mpich)
    assert not redistribute_peers.is_linked_to(None, openmpi)

    for variable in ("PENSTOCK_BENCH_COSTA", "PENSTOCK_BENCH_COSTA_BATCH", "PENSTOCK_BENCH_SCALAPACK"):
        monkeypatch.setenv(variable, str(library))
    monkeypatch.setattr(redistribute_peers, "scalapack_path", lambda mpi: library)
    by_name = {program.name: program for program in redistribute.programs(openmpi)}
    assert {"scalapack", "costa", "costa-three", "costa-batch", "penstock-names"} <= set(by_name)
    assert by_name["penstock"].baselines == ("copy", "scalapack", "costa")
    assert by_name["penstock-batch"].baselines == ("penstock-three", "costa-three", "costa-batch")
    assert {program.job for program in by_name.values()} == {"one", "three"}
    others = {program.name for program in redistribute.programs(mpich)}
    assert others == {"copy", "penstock", "penstock-three", "penstock-batch"}


def test_peers_of_one_job_are_measured_in_turns(monkeypatch):
    class Together:
        @staticmethod
        def programs(_mpi):
            mine = [runner.Program(name, ("other",), job="one") for name in ("penstock", "broken")]
            return [runner.Program("other", job="one"), *mine, runner.Program("alone")]

    jobs = []

    def launch(_case, _mpi, program, _parameters, _ranks):
        jobs.append(program.name)
        if not program.job:
            return [({"bytes": 8}, [7.0])]
        measured = [
            ({"program": name, "bytes": 8}, [len(name)]) for name in program.name.split(",") if name != "broken"
        ]
        return [*measured, *([({"program": "broken", "cannot": "no such library"}, [])] if len(jobs) == 1 else [])]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Together, {}, ranks=[2], mpis=[MPI], repetitions=2)
    assert jobs == ["other,penstock,broken", "alone", "alone", "other,penstock"]
    (row,) = report.rows
    assert row.samples == {"other/mpich": [5, 5], "penstock/mpich": [8, 8], "alone/mpich": [7.0, 7.0]}
    assert report.left_out == {"broken/mpich": "on 2 ranks: no such library"}

    monkeypatch.setattr(runner, "_launch", lambda *_: "the job ended with status 1")
    report = runner.run("case", Together, {}, ranks=[2], mpis=[MPI], repetitions=1, programs=["other", "penstock"])
    reason = "on 2 ranks: the job ended with status 1"
    assert report.left_out == dict.fromkeys(("other/mpich", "penstock/mpich"), reason)


def test_plot(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(
        runner, "_launch", lambda *_: [({"op": "x", "bytes": n}, [n * 1e-6, n * 2e-6]) for n in (8, 64)]
    )
    report = runner.run("case", Case, {}, ranks=[2, 3], mpis=[MPI], repetitions=1)
    runner.plot(report, str(tmp_path / "plot.svg"))
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def bench(*arguments):
    command = [sys.executable, "-m", "penstock", "bench", *arguments, "--quick"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def refused(capsys, *arguments, status=2):
    """What the command says before it starts a job. It runs in this process, which takes less time."""
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments, "--quick"])
    assert end.value.code == status, arguments
    return capsys.readouterr().err


@needs_mpi
@pytest.mark.parametrize("name", [name for name in CASES if name != "overlap"])
def test_each_benchmark_runs(name, tmp_path):
    mpi = installations()[0]
    module = "torch" if name == "bootstrap" else name
    if module in ("torch", "jax") and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; tests/pytorch_programs runs its benchmark where it is")
    quick = {
        "collectives": ["--ops", "bcast,allreduce,scatter,alltoall,reduce_scatter_block,scan", "--bytes", "8,1K"],
        "redistribute": ["--orders", "200"],
        "store": ["--bytes", "256K", "--row-bytes", "1K,32K"],
        "ingest": ["--images", "32", "--directory", str(tmp_path)],
        "checkpoint": ["--hdd", str(tmp_path), "--optane", str(tmp_path), "--state-mb", "1"],
    }
    done = bench(name, "--ranks", "2", "--mpi", mpi.name, "--json", *quick.get(name, []))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["benchmark"] == name
    missing = getattr(runner.load(name), "missing", lambda _mpi: {})(mpi)
    assert report["left_out"] == {f"{peer}/{mpi.name}": reason for peer, reason in missing.items()}
    for row in report["rows"]:
        assert row["setting"]["ranks"] == 2
        assert all(seconds > 0 for seconds in row["seconds"].values())
        if row["setting"].get("experiment") == "readers":  # of a version, which no peer has
            assert list(row["seconds"]) == [f"penstock/{mpi.name}"]
            continue
        if row["setting"].get("access") == "iwrite":  # plain files have none
            assert set(report["peers"]) - set(row["seconds"]) == {f"plain/{mpi.name}", f"overwritten/{mpi.name}"}
            continue
        assert set(row["seconds"]) == set(report["peers"])
        assert row["speedup"]


@needs_mpi
def test_overlap_runs(tmp_path):
    mpi = installations()[0].name
    given = [
        "--ranks",
        "2",
        "--mpi",
        mpi,
        "--ops",
        "reduce,gather,allgather,alltoall",
        "--progress-cores",
        "1",
        "--bytes",
        "64K",
        "--splits",
        "0,2,auto",
        "--budget-s",
        "0.05",
    ]
    done = bench("overlap", *given, "--root", "1", "--ratio", "1,4", "--json", "--plot", str(tmp_path / "plot.png"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["left_out"], report["left_out"]
    assert report["parameters"]["bytes"] == [65536]
    assert (tmp_path / "plot.png").stat().st_size > 0
    points = report["summary"]["points"]
    ways = {(point["peer"].split("/")[0], point["mode"]) for point in points}
    own = {("penstock", mode) for mode in ("blocking", "split 0", "split 2", "auto")}
    assert ways >= own | {("native", "blocking"), ("native", "nonblocking"), ("penstock-off", "auto")}
    assert {(point["operation"], point["ratio"]) for point in points} == {
        (operation, ratio) for operation in ("reduce", "gather", "allgather", "alltoall") for ratio in (1, 4)
    }
    for point in points:
        assert min(point["alone_s"], point["computation_s"], point["total_s"]) > 0
        assert 0 <= point["overlap_imb_percent"] <= 100
        assert point["overlap_osu_percent"] >= 0
        if point["peer"].startswith("penstock/") and point["mode"] == "auto":
            assert point["plan"].startswith(point["operation"] + "/")
    for comparison in report["summary"]["comparisons"]:
        best = comparison["best"]
        assert comparison["speedup"]["peer"] == pytest.approx(best["peer"]["total_s"] / best["penstock"]["total_s"])
        assert list(comparison["total_to_computation_by_ranks"]) == ["2"]
    assert report["summary"]["idle_by_ranks"][f"penstock/{mpi}"]["2"] > 0


@needs_mpi
def test_wrong_arguments(capsys):
    with pytest.raises(Error, match="no MPI 'fastmpi' was found"):
        installations(["fastmpi"])
    mpi = installations()[0].name
    for name, option, value in (
        ("collectives", "--ops", "sort"),
        ("collectives", "--order", "up"),
        ("overlap", "--ops", "sort"),
    ):
        said = refused(capsys, name, option, value, "--ranks", "1", "--mpi", mpi)
        assert f"'{value}' is not one of" in said.splitlines()[-1], said
        assert "repetition" not in said, "a job was started"
    assert "expected native" in refused(capsys, "overlap", "--peers", "penstock", "--ranks", "2", "--mpi", mpi)
    for option, value in (
        ("--bytes", "2X"),
        ("--bytes", "-8"),
        ("--bytes", ","),
        ("--cores", "9999"),
        ("--ratio", "much"),
        ("--budget-s", "nan"),
        ("--ranks", "few"),
        ("--ranks", "0"),
    ):
        (line,) = refused(capsys, "overlap", option, value, "--mpi", mpi).splitlines()
        assert option in line, line


@needs_mpi
def test_a_plot_that_cannot_be_written_starts_no_job(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for place, status, text in (
        (tmp_path / "none/plot.png", 1, "there is no directory"),
        (tmp_path / "plot.odd", 2, "ends with .odd"),
    ):
        (line,) = refused(capsys, "collectives", "--plot", str(place), status=status).splitlines()
        assert text in line


@needs_mpi
def test_under_a_launcher_one_rank_says_that_it_starts_its_own_jobs():
    mpi = installations()[0]
    command = [*mpi.launcher(3), sys.executable, "-m", "penstock", "bench", "collectives", "--quick"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=mpi.environment())
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count("starts its own jobs") == 1, done.stdout + done.stderr


def test_values_of_options():
    assert cli._value([1], "8,64K,2M,1g") == [8, 65536, 2 << 20, 1 << 30]
    assert cli._value(["0"], "0,4,auto") == ["0", "4", "auto"]
    assert cli._value([1.0], "1,2.5") == [1.0, 2.5]
    assert overlap.RANKS(16) == [15, 16, 14, 12, 8]
    assert overlap.RANKS(2) == overlap.RANKS(1) == [2]
    assert cli._ranks(overlap, "3,5", quick=True) == [3, 5]
    assert cli._ranks(Ranked, "auto", quick=False) == cli._ranks(Ranked, None, quick=False) == [2, 4]
    assert cli._ranks(Ranked, None, quick=True) == [2]


class Ranked:
    RANKS = (2, 4)


def test_overlap_formulas():
    """10 ms alone, overlapped with 10 ms of computation."""
    for overlapped, imb, osu in ((10, 100, 100), (15, 50, 50), (20, 0, 0), (25, 0, 0), (9, 100, 110)):
        assert overlap_results.overlap_imb(10, 10, overlapped) == pytest.approx(imb)
        assert overlap_results.overlap_osu(10, 10, overlapped) == pytest.approx(osu)
    # 40 ms of computation hide the whole collective; IMB divides by the longer of the two.
    assert overlap_results.overlap_imb(10, 40, 40) == pytest.approx(25)
    assert overlap_results.overlap_osu(10, 40, 40) == pytest.approx(100)
    assert overlap_results.overlap_osu(10, 40, 44) == pytest.approx(60)
    assert overlap_results.hidden_share(10, 40, 44) == pytest.approx(0.6)
    assert overlap_results.hidden_share(10, 40, 55) == pytest.approx(-0.5)  # the computation was delayed


def overlap_report():
    """Two numbers of ranks, with round times in seconds."""
    times = {  # ranks → peer → (measured, split) → seconds
        4: {
            "native/mpich": {("blocking", ""): 4, ("alone", "nonblocking"): 6, ("overlapped", "nonblocking"): 8.5},
            "penstock/mpich": {("blocking", ""): 4, ("alone", "0"): 8, ("alone", "auto"): 5, ("overlapped", "0"): 8,
                               ("overlapped", "auto"): 6},
        },
        3: {
            "native/mpich": {("blocking", ""): 3, ("alone", "nonblocking"): 5, ("overlapped", "nonblocking"): 9.5},
            "penstock/mpich": {("blocking", ""): 3, ("alone", "0"): 6, ("alone", "auto"): 6, ("overlapped", "0"): 5.5,
                               ("overlapped", "auto"): 5.6},
        },
    }  # fmt: skip
    rows = {}
    for ranks, peers in times.items():
        for peer, measured in peers.items():
            computation = 16 / ranks
            everything = {
                **measured,
                ("computation", ""): computation,
                ("sequence", ""): 1 + measured["blocking", ""] + computation,
            }
            for (what, split), seconds in everything.items():
                ratio = 0 if what in ("blocking", "alone") else 1
                setting = {"ranks": ranks, "operation": "reduce", "bytes": 8, "ratio": ratio, "split": split, "plan": "",
                           "measured": what}  # fmt: skip
                row = rows.setdefault(str(setting), runner.Row(setting))
                row.seconds[peer] = seconds
        for what, seconds in (("idle", 2.02), ("closed", 2.0)):
            setting = {
                "ranks": ranks,
                "operation": "none",
                "bytes": 0,
                "ratio": 0,
                "split": "",
                "plan": "",
                "measured": what,
            }
            rows[str(setting)] = runner.Row(setting, {"penstock/mpich": seconds})
    peers = ["native/mpich", "penstock/mpich"]
    report = runner.Report("overlap", {"cores": 4}, {"all_cores": 4}, peers, list(rows.values()), {})
    report.summary = overlap_results.summarize(report)
    return report


def test_overlap_is_summed_up(tmp_path):
    report = overlap_report()
    (comparison,) = report.summary["comparisons"]
    best = {key: (point["peer"], point["mode"], point["ranks"]) for key, point in comparison["best"].items()}
    assert best == {
        "penstock": ("penstock/mpich", "auto", 3),
        "penstock_any_mode": ("penstock/mpich", "split 0", 3),
        "peer": ("native/mpich", "nonblocking", 4),  # blocking: 1 + 4 + 4 on 4 ranks, 1 + 3 + 16/3 on 3
        "peer_nonblocking": ("native/mpich", "nonblocking", 4),
    }
    assert comparison["speedup"] == {"peer": pytest.approx(8.5 / 5.6), "peer_nonblocking": pytest.approx(8.5 / 5.6)}
    assert comparison["alone_to_blocking_by_ranks"] == {3: 2.0, 4: 1.25}
    assert comparison["total_to_computation_by_ranks"] == {3: pytest.approx(5.6 * 3 / 16), 4: 1.5}
    # S = 0: two transfers. Alone they take 6 s on 3 ranks and 8 s on 4, so 3.5 s each. 16 core-seconds of computation.
    # On 3 ranks the communication core does the transfers meanwhile; on 4 ranks there is none.
    assert comparison["model_s"] == {"split 0": {3: pytest.approx(7.0), 4: pytest.approx(11.0)}}
    alone = [dataclasses.replace(point, ranks=1) for point in overlap_results.points(report)]
    assert overlap_results._predictions(alone, 4) == {}  # one rank sends nothing
    assert comparison["auto_to_best_by_ranks"] == {3: pytest.approx(5.6 / 5.5), 4: 1.0}
    assert report.summary["idle_by_ranks"] == {"penstock/mpich": {3: pytest.approx(1.01), 4: pytest.approx(1.01)}}
    (point,) = [p for p in report.summary["points"] if (p["ranks"], p["mode"]) == (4, "split 0")]
    assert (point["alone_s"], point["computation_s"], point["total_s"]) == (8, 4, 8)
    assert (point["overlap_imb_percent"], point["overlap_osu_percent"]) == (50, 50)
    text = overlap_results.table(report)
    assert "Penstock is 1.52 x as fast" in text
    assert "without one: 1.010 on 3, 1.010 on 4" in text
    pytest.importorskip("matplotlib")
    overlap_results.plot(report, str(tmp_path / "plot.svg"))
    assert "<svg" in (tmp_path / "plot.svg").read_text()
