"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import ister


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ister.gateway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version():
    """`ister --version` prints the version and nothing else."""
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        f"ister {ister.__version__}\n",
        "",
    )


def test_version_loads_no_command_line():
    """The version is cheap: neither typer nor the log is imported for it."""
    code = (
        "import sys; sys.argv = ['ister', '--version']\n"
        "from ister.gateway.__main__ import main; main()\n"
        "assert not {'typer', 'ister.wal', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_loads_no_log():
    """Commands import what they need when they run, so help never pays for it."""
    code = (
        "import sys; import ister.gateway.cli.main\n"
        "heavy = {'asyncio', 'sqlite3', 'rich'} & set(sys.modules)\n"
        "heavy |= {name for name in sys.modules if name.startswith('ister.wal.')}\n"
        "assert not heavy, sorted(heavy)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_names_every_group():
    """`ister --help` shows the groups of commands."""
    result = run("--help")
    assert result.returncode == 0
    assert "log" in result.stdout
    assert "archive" in result.stdout


def test_an_unknown_command_is_a_usage_error():
    """Exit code 2 and words on stderr; stdout stays empty for scripts."""
    result = run("bogus")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "bogus" in result.stderr


def test_config_shows_every_setting_with_its_origin(tmp_path, monkeypatch):
    """File, environment and --set, later wins; a secret is not shown."""
    monkeypatch.setenv("ISTER_NUM_PARTITIONS", "5")
    file = tmp_path / "ister.toml"
    file.write_text("num.partitions = 2\nnode.id = 7\nister.http.token = 'hush'\n")
    result = run("config", "--config", str(file), "--set", "log.retention.ms=1000", "--json")
    assert result.returncode == 0, result.stderr
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(result.stdout)}
    assert rows["node.id"] == (7, str(file))
    assert rows["num.partitions"] == (5, "environment variable ISTER_NUM_PARTITIONS")
    assert rows["log.retention.ms"] == (1000, "--set")
    assert rows["message.max.bytes"] == (1_048_588, "default")
    assert rows["ister.http.token"] == ("(set)", str(file))
    assert "hush" not in result.stdout


def test_config_says_true_and_false_as_the_file_wants_them():
    """The table's words for yes and no are not TOML's."""
    result = run("config", "--set", "auto.create.topics.enable=no", "--changed")
    assert result.stdout.splitlines()[1].split() == ["auto.create.topics.enable", "false", "--set"]


def test_config_offers_the_name_that_was_meant():
    """Of the settings there are, the one most alike; nothing if none is."""
    result = run("config", "--set", "num.partitons=1", "--set", "flush=1")
    assert result.stderr.splitlines() == [
        "ister: num.partitons (--set): there is no such setting; is num.partitions meant?",
        "ister: flush (--set): there is no such setting",
    ]


def test_config_lists_everything_that_is_wrong():
    """Exit 2, one line each."""
    result = run("config", "--set", "a=1", "--set", "num.partitions=0")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 2


def test_a_broker_starts_without_rich():
    """It is there because typer wants it, and loading it takes a fifth of the start."""
    code = (
        "import sys; sys.argv = ['ister', 'serve', '--workers', '2']\n"
        "from ister.gateway.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 2, end.code\n"
        "assert 'ister.gateway.broker' in sys.modules\n"
        "assert not [name for name in sys.modules if name.startswith('rich.')]"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert result.returncode == 0, result.stderr
