"""The queries of docs/report.md on a trace of `pagelab export --again`: python test_trace.py DOCUMENT TRACE WHY.

WHY is what `pagelab why --slowest 1 --what fault --format json` says about the same cell. Perfetto's trace processor answers, if
the program that its package downloads at first use is there (`cargo xtask perfetto` tries); else the tables are made here, of the
trace as Perfetto's own messages decode it, and SQLite answers: the same tables and queries, but not the same reader.
"""

import glob
import json
import os
import pathlib
import re
import sqlite3
import sys
import unittest

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

DOCUMENT = TRACE = WHY = ""
TABLES = """
CREATE TABLE process (upid INTEGER PRIMARY KEY, pid, name);
CREATE TABLE thread (utid INTEGER PRIMARY KEY, tid, upid, name);
CREATE TABLE thread_track (id INTEGER PRIMARY KEY, utid, name);
CREATE TABLE process_track (id INTEGER PRIMARY KEY, upid, name);
CREATE TABLE slice (id INTEGER PRIMARY KEY, ts, dur, track_id, category, name, depth, parent_id, arg_set_id);
CREATE INDEX of_track ON slice (track_id, ts);
CREATE TABLE flow (id INTEGER PRIMARY KEY, slice_out, slice_in);
CREATE TABLE counter_track (id INTEGER PRIMARY KEY, name, unit);
CREATE TABLE counter (ts, track_id, value);
"""


def processor():
    """The program of the trace processor, where the package has it."""
    found = os.environ.get("TRACE_PROCESSOR") or None
    kept = glob.glob(os.path.expanduser("~/.local/share/perfetto/prebuilts/trace_processor_shell-*"))
    return found or next((path for path in kept if not path.endswith(".tmp")), None)


def annotation(note):
    kind = note.WhichOneof("value")
    return None if kind is None else getattr(note, kind)


class Tables:
    """The tables of the trace processor that the queries use, made here."""

    def __init__(self, path):
        self.base = sqlite3.connect(":memory:")
        self.base.executescript(TABLES)
        self.notes = []
        self.base.create_function("EXTRACT_ARG", 2, self.extract, deterministic=True)
        trace = Trace()
        trace.ParseFromString(pathlib.Path(path).read_bytes())
        self.descriptors = {}
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                self.describe(packet.track_descriptor)
        self.open, self.flows = {}, {}
        # A stable sort, as the processor's.
        for packet in sorted((packet for packet in trace.packet if packet.HasField("track_event")), key=lambda of: of.timestamp):
            self.event(packet.timestamp, packet.track_event)
        assert not any(self.open.values()), "every slice ends"

    def extract(self, args, key):
        return None if args is None else self.notes[args].get(key.removeprefix("debug."))

    def describe(self, track):
        assert track.uuid not in self.descriptors, "each track has a number of its own"
        self.descriptors[track.uuid] = track
        if track.HasField("process"):
            self.base.execute("INSERT INTO process VALUES (?, ?, ?)", (track.uuid, track.process.pid, track.process.process_name))
            return
        root = track
        while root.parent_uuid:
            root = self.descriptors[root.parent_uuid]
        if track.HasField("thread"):
            thread = (track.uuid, track.thread.tid, root.uuid, track.thread.thread_name)
            self.base.execute("INSERT INTO thread VALUES (?, ?, ?, ?)", thread)
            self.base.execute("INSERT INTO thread_track VALUES (?, ?, ?)", (track.uuid, track.uuid, track.thread.thread_name))
        elif track.HasField("counter"):
            self.base.execute("INSERT INTO counter_track VALUES (?, ?, ?)", (track.uuid, track.name, track.counter.unit_name))
        else:
            self.base.execute("INSERT INTO process_track VALUES (?, ?, ?)", (track.uuid, root.uuid, track.name))

    def event(self, ts, event):
        stack = self.open.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_COUNTER:
            self.base.execute("INSERT INTO counter VALUES (?, ?, ?)", (ts, event.track_uuid, event.counter_value))
            return
        if event.type == TrackEvent.TYPE_SLICE_END:
            number, begin = stack.pop()
            self.base.execute("UPDATE slice SET dur = ? WHERE id = ?", (ts - begin, number))
            return
        number = len(self.notes)
        self.notes.append({note.name: annotation(note) for note in event.debug_annotations})
        parent = stack[-1][0] if stack else None
        row = (number, ts, 0, event.track_uuid, event.categories[0], event.name, len(stack), parent, number)
        self.base.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((number, ts))
        for flow in event.flow_ids:
            self.flows[flow] = number
        for flow in event.terminating_flow_ids:
            self.base.execute("INSERT INTO flow (slice_out, slice_in) VALUES (?, ?)", (self.flows.pop(flow), number))

    def query(self, text):
        found = self.base.execute(text)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row)) for row in found]


class Perfetto:
    """The trace processor itself."""

    def __init__(self, path, program):
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

        self.processor = TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=program))

    def query(self, text):
        return [dict(row.__dict__) for row in self.processor.query(text)]


def shown(rows):
    """Rows as the document shows them."""
    names = list(rows[0]) if rows else []
    text = lambda value: "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    cells = [names] + [[text(row[name]) for name in names] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


class OneTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = processor()
        print(f"answered by {program or 'SQLite, on tables made here: no trace processor is here'}", file=sys.stderr)
        cls.engine = Perfetto(TRACE, program) if program else Tables(TRACE)
        cls.queries = re.findall(r"```sql\n(.*?)```", pathlib.Path(DOCUMENT).read_text(), re.DOTALL)
        cls.why = json.loads(pathlib.Path(WHY).read_text())[0]

    def test_the_slowest_fault_is_that_of_why(self):
        (fault,) = self.engine.query(self.queries[0])
        self.assertEqual(fault["task"], f"task {self.why['task']}")
        self.assertAlmostEqual(fault["s"], self.why["start_ps"] / 1e12, places=8)
        self.assertAlmostEqual(fault["us"], self.why["time_ps"] / 1e6, places=6)

    def test_the_time_of_the_slowest_fault_by_cause_is_that_of_why(self):
        rows, sums = self.engine.query(self.queries[1]), {}
        for row in rows:
            sums[row["cause"]] = sums.get(row["cause"], 0) + row["us"]
        for cause, ps in self.why["parts"]:
            self.assertAlmostEqual(sums.pop(cause), ps / 1e6, places=6)
        self.assertEqual(sums, {})
        longest = max(self.why["parts"], key=lambda part: part[1])[0]
        self.assertIn(longest, [row["cause"] for row in rows[:2]])

    def test_a_fault_that_waits_has_a_waker(self):
        wakers = self.engine.query(self.queries[2])
        sleeps = [fact for fact in self.why["facts"] if fact["fact"].get("cause") in ("disk", "swap", "folio lock", "throttle")]
        self.assertGreaterEqual(len(wakers), 1 if sleeps else 0)
        self.assertTrue(all(row["waker"] for row in wakers))

    def test_names_are_unique_in_a_process(self):
        for table in ["thread", "process_track"]:
            twice = f"SELECT name FROM {table} WHERE upid IS NOT NULL AND name IS NOT NULL GROUP BY upid, name HAVING COUNT(*) > 1"
            self.assertEqual(self.engine.query(twice), [])

    def test_each_wake_up_by_a_task_is_a_flow(self):
        count = lambda rest: self.engine.query(f"SELECT COUNT(*) AS n FROM {rest}")[0]["n"]
        flows = count("flow")
        self.assertGreater(flows, 0)
        self.assertEqual(flows, count("slice WHERE category = 'wake-up' AND name GLOB 'wakes *'"))
        back = "flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in WHERE a.ts > b.ts"
        self.assertEqual(count(back), 0)


if __name__ == "__main__":
    DOCUMENT, TRACE, WHY = (sys.argv.pop(1) for _ in range(3))
    if "--show" in sys.argv:
        engine = Tables(TRACE)
        for query in re.findall(r"```sql\n(.*?)```", pathlib.Path(DOCUMENT).read_text(), re.DOTALL):
            print(f"{query}\n{shown(engine.query(query))}\n")
        sys.exit(0)
    program = unittest.main(verbosity=2, exit=False)
    wrong = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - wrong} passed, {wrong} failed", flush=True)
    sys.exit(1 if wrong else 0)
