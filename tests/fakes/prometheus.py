"""A Prometheus on loopback that answers ``/api/v1/query`` as Prometheus does, with what a dcgm-exporter told it.

Of the real one's language it understands what is asked here: a selector on ``__name__``, alone or with one label and a
range, and a count by labels. Its failure modes are classes with a name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

USE, SM = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"
TENSOR, DRAM = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
SELECTOR = re.compile(r'\{__name__=~"(?P<names>[^"]+)",(?P<label>\w+)=~"(?P<values>[^"]+)"\}\[(?P<minutes>\d+)m\]')
RANGE = re.compile(r'max_over_time\((\w+)\{(\w+)="([^"]+)"\}\[1m\]\)')
COUNT = re.compile(r'count by \((?P<labels>[^)]+)\) \(\{__name__=~"(?P<names>[^"]+)"\}\)')
INSTANT = re.compile(r'\{__name__=~"(?P<names>[^"]+)"\}')


@dataclass
class Told:
    """One series and its samples: (seconds before now, what Prometheus prints)."""

    metric: str
    card: str
    instance: int | None
    samples: list[tuple[float, str]]
    labels: dict[str, str] = field(default_factory=dict)

    def written(self, now: float, longest: float) -> dict[str, Any]:
        labels = {"__name__": self.metric, "UUID": self.card, "gpu": "0", "Hostname": "lab"}
        if self.instance is not None:
            labels |= {"GPU_I_ID": str(self.instance), "GPU_I_PROFILE": "1g.5gb"}
        labels |= self.labels
        values = [[now - ago, value] for ago, value in self.samples if ago <= longest]
        return {"metric": labels, "values": values}


class PrometheusAsTold:
    """Answers with the series it was told. `asked` are the queries, `tokens` what came with them.

    `past`: name, labels, and Unix time -> value, for questions about a range of at most `most_seconds`.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.series: list[Told] = []
        self.asked: list[str] = []
        self.was_asked = asyncio.Event()
        self.tokens: list[str | None] = []
        self.past: list[tuple[str, dict[str, str], dict[float, str]]] = []
        self.most_seconds = 10**9
        routes = [
            (r"/prom/api/v1/query", _Query, {"told": self}),
            (r"/prom/api/v1/query_range", _Range, {"told": self}),
        ]
        self._server = HTTPServer(Application(routes))
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/prom"

    def tell(
        self,
        card: str,
        instance: int | None,
        ratio: float | str,
        *,
        metric: str = USE,
        ago: float = 5.0,
        **labels: str,
    ) -> None:
        """The exporter said this `ago` seconds before each question, whenever that is."""
        self.forget(card, instance, metric, labels)
        self.series.append(Told(metric, card, instance, [(ago + 30, "0.5"), (ago, str(ratio))], labels))

    def forget(self, card: str, instance: int | None, metric: str, labels: dict[str, str]) -> None:
        told = (metric, card, instance, labels)
        self.series = [each for each in self.series if (each.metric, each.card, each.instance, each.labels) != told]

    async def answer(self, handler: RequestHandler, query: str) -> None:
        """Parse the selector, pick the series, write the matrix."""
        counted = COUNT.fullmatch(query)
        if counted is not None:
            handler.finish(json.dumps({"status": "success", "data": self._count(counted)}))
            return
        now = INSTANT.fullmatch(query)
        if now is not None:
            here = [each.written(self.now(), 300.0) for each in self.series if re.fullmatch(now["names"], each.metric)]
            vector = [{"metric": each["metric"], "value": each["values"][-1]} for each in here if each["values"]]
            handler.finish(json.dumps({"status": "success", "data": {"resultType": "vector", "result": vector}}))
            return
        found = SELECTOR.fullmatch(query)
        if found is None:
            handler.set_status(400)
            handler.finish({"status": "error", "errorType": "bad_data", "error": f"parse error: {query}"})
            return
        picked = [
            written
            for each in self.series
            if re.fullmatch(found["names"], each.metric)
            and (written := each.written(self.now(), 60.0 * int(found["minutes"])))["values"]
            and re.fullmatch(found["values"], written["metric"].get(found["label"], ""))
        ]
        handler.finish(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": picked}}))

    def _count(self, asked: re.Match[str]) -> dict[str, Any]:
        """How many series of these names have the same values of these labels, of those that are not stale."""
        here = [each.written(self.now(), 300.0) for each in self.series if re.fullmatch(asked["names"], each.metric)]
        by = asked["labels"].split(", ")
        groups = Counter(
            tuple((name, each["metric"][name]) for name in by if name in each["metric"])
            for each in here
            if each["values"]
        )
        found = [{"metric": dict(labels), "value": [self.now(), str(count)]} for labels, count in groups.items()]
        return {"resultType": "vector", "result": found}

    async def answer_range(self, handler: RequestHandler, query: str, start: float, end: float, step: float) -> None:
        """Refuse what is too much at once, as the real one does; else write the matrix."""
        if end - start > self.most_seconds:
            handler.set_status(422)
            handler.finish({"status": "error", "errorType": "execution", "error": "it would load too many samples"})
            return
        result = self.range(query, start, end, step)
        handler.finish({"status": "success", "data": {"resultType": "matrix", "result": result}})

    def range(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The highest value of each step, of the series that the query's selectors name."""
        found = []
        for name, label, value in RANGE.findall(query):
            for metric, labels, samples in self.past:
                if metric != name or labels.get(label) != value:
                    continue
                values = []
                for number in range(int((end - start) // step) + 1):
                    at = start + number * step
                    inside = [text for when, text in samples.items() if at - 60 < when <= at]
                    values += [[at, max(inside)]] if inside else []
                if values:
                    found.append({"metric": labels, "values": values})
        return found

    async def stop(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()


class PrometheusThatIsSlow(PrometheusAsTold):
    """Takes the question, and answers when nobody waits any more."""

    async def answer(self, handler: RequestHandler, query: str) -> None:
        assert isinstance(handler, _Query)
        await handler.gone.wait()


class PrometheusThatFails(PrometheusAsTold):
    """Answers every question with a status of its own, 500 at first."""

    status = 500

    async def answer(self, handler: RequestHandler, query: str) -> None:
        handler.set_status(self.status)
        if self.status in (301, 302):
            handler.set_header("Location", self.url + "/elsewhere")
        handler.finish("no")

    async def answer_range(self, handler: RequestHandler, query: str, start: float, end: float, step: float) -> None:
        await self.answer(handler, query)


class PrometheusThatSays(PrometheusAsTold):
    """Answers 200 with these bytes, whatever they are."""

    body = b"<html>Log in</html>"

    async def answer(self, handler: RequestHandler, query: str) -> None:
        handler.finish(self.body)

    async def answer_range(self, handler: RequestHandler, query: str, start: float, end: float, step: float) -> None:
        await self.answer(handler, query)


class PrometheusWithoutEnd(PrometheusAsTold):
    """Answers, and goes on answering as long as somebody reads."""

    async def answer(self, handler: RequestHandler, query: str) -> None:
        assert isinstance(handler, _Query)
        handler.write('{"status": "success", "data": {"resultType": "matrix", "result": [')
        while not handler.gone.is_set():
            handler.write(b" " * 1024)
            try:
                await handler.flush()
            except StreamClosedError:
                return
            await asyncio.sleep(0.01)

    async def answer_range(self, handler: RequestHandler, query: str, start: float, end: float, step: float) -> None:
        await self.answer(handler, query)


class _Query(RequestHandler):
    def initialize(self, told: PrometheusAsTold) -> None:
        self.told = told
        self.gone = asyncio.Event()

    def on_connection_close(self) -> None:
        self.gone.set()

    async def get(self) -> None:
        await self.post()

    async def post(self) -> None:
        query = self.get_argument("query")
        self.told.asked.append(query)
        self.told.was_asked.set()
        self.told.tokens.append(self.request.headers.get("Authorization"))
        await self.told.answer(self, query)

    def log_exception(self, *args: Any) -> None:
        """What went wrong in the stand-in fails the test by its answer."""


class _Range(_Query):
    async def post(self) -> None:
        query, start, end, step = (self.get_argument(name) for name in ("query", "start", "end", "step"))
        self.told.asked.append(query)
        self.told.tokens.append(self.request.headers.get("Authorization"))
        await self.told.answer_range(self, query, float(start), float(end), float(step))
