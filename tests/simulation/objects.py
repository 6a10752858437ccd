"""An object store of the simulation: the library beneath `storage.objects`, with what can go wrong at a real one.

Each request has its effect at one moment, between its begin and its answer, or never, or after the client has given it
up. As the real library does, it tries again for half a minute, so a put if absent can be refused by itself.
"""

from types import SimpleNamespace

from obstore import exceptions

# How long the library tries, in seconds, and after what time an answer that does not come is given up.
_TRIES, _TIMEOUT = 30.0, 60.0
# How late what was given up may have its effect, in seconds.
_LATE = 300.0
_CUT = "Generic S3 error: request or response body error"
_GONE = "Generic S3 error: Error after 9 retries in 30s, source: error sending request"
_BUSY = "Generic S3 error: Error after 9 retries in 30s, status code: 503 Service Unavailable"

#: What can happen to a request, and how often among a thousand while the object store is in trouble.
FAULTS = {"slow": 20, "busy": 20, "failed": 2, "lost": 15, "lost for good": 2, "late": 3, "conflict": 8, "cut": 15}


class Bucket:
    """The objects, and the requests to them; it is the library, too.

    Attributes:
        exceptions: the errors of the real library.
        kept: the objects.
        trouble: how often something goes wrong, as a factor.
        cut_off: names of processes whose requests do not get through, each until when.
        faults: how often what was wrong.
    """

    exceptions = exceptions

    def __init__(self, world):
        self.world, self.kept, self.trouble = world, {}, 0.0
        self.cut_off, self.faults, self.bucket = {}, dict.fromkeys([*FAULTS, "cut off"], 0), self

    # ---- the library's functions

    def put(self, _client, key, data, *, mode="overwrite", use_multipart=False):
        data, is_new = bytes(data), mode == "create"

        def act():
            if is_new and key in self.kept:
                raise exceptions.AlreadyExistsError(key)
            self.kept[key] = data

        return self._ask("create" if is_new else "put", key, act)

    def get(self, _client, key, *, options=None):
        def act():
            data = self._found(key)
            most = len(data) if options is None else options["range"][1]
            return SimpleNamespace(bytes=lambda: data[:most], meta={"size": len(data)})

        return self._ask("get", key, act)

    def get_ranges(self, _client, key, *, starts, lengths):
        def act():
            data = self._found(key)
            return [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]

        return self._ask("get", key, act)

    def list(self, _client, prefix, *, offset=None):
        def act():
            start = "" if prefix is None else f"{prefix}/"
            return [
                {"path": key, "size": len(self.kept[key])}
                for key in sorted(self.kept)
                if key.startswith(start) and (offset is None or key > offset)
            ]

        yield self._ask("list", prefix or "", act)

    def delete(self, _client, keys):
        def act():
            for key in keys:
                self.kept.pop(key, None)

        return self._ask("delete", keys[0], act)

    def _found(self, key):
        if key not in self.kept:
            raise FileNotFoundError(f"Object at location {key} not found")
        return self.kept[key]

    # ---- requests on their way

    def _ask(self, kind, key, act):
        world, process = self.world, self.world.current.process
        fault = self._fault(kind)
        there, back = self._latency(), self._latency()
        if fault:
            self.faults[fault] += 1
        if fault == "slow":
            there += world.chance.uniform(0.2, 8)
        elif fault == "busy":
            there += world.chance.uniform(0.1, _TRIES)
        elif fault == "cut off":
            there = world.chance.uniform(1, _TIMEOUT)
        outcome = self._outcome(fault, kind, act, there, back)
        world.note(f"{process.name} {kind} {key} {fault} {type(outcome).__name__}")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _latency(self):
        return self.world.chance.uniform(0.002, 0.03)

    def _fault(self, kind):
        world = self.world
        if self.cut_off.get(world.current.process.name, 0) > world.now:
            return "cut off"
        if not self.trouble or not world.likely(self.trouble * sum(FAULTS.values()) / 1000):
            return ""
        [fault] = world.chance.choices(list(FAULTS), FAULTS.values())
        is_write = kind in ("put", "create", "delete")
        if fault == "conflict":
            return fault if kind == "create" else "busy"
        if fault == "cut":
            return "lost" if is_write else fault
        return fault if is_write or fault in ("slow", "busy", "failed") else "busy"

    def _outcome(self, fault, kind, act, there, back):
        """What is answered, after some time."""
        world, chance = self.world, self.world.chance
        if fault in ("failed", "cut off", "conflict", "cut"):
            world.block(world.now + there + back)
            if fault == "conflict":
                return exceptions.AlreadyExistsError("409 Conflict")
            return exceptions.GenericError({"failed": _BUSY, "cut": _CUT}.get(fault, _GONE))
        if fault == "late":
            world.after(chance.uniform(1, _LATE), lambda: self._try(act, "late"))
            world.block(world.now + chance.uniform(_TRIES, _TIMEOUT))
            return exceptions.GenericError(_GONE)
        answer = self._sent(act, there, 0 if fault in ("lost", "lost for good") else back)
        if fault == "lost":
            # The library asks again.
            world.block(world.now + chance.uniform(0.1, 5))
            return self._sent(act, there, back)
        if fault == "lost for good":
            world.block(world.now + chance.uniform(_TRIES, _TIMEOUT))
            return exceptions.GenericError(_GONE)
        return answer

    def _sent(self, act, there, back):
        """The answer to one try, which has its effect whatever becomes of the process that has sent it."""
        world, task, answers = self.world, self.world.current, []

        def arrive():
            answers.append(self._try(act, ""))
            if back:
                world.after(back, lambda: world.wake(task))
            else:
                world.wake(task)

        world.after(there, arrive)
        world.block()
        return answers[0]

    def _try(self, act, note):
        try:
            answer = act()
        except (FileNotFoundError, exceptions.BaseError) as error:
            answer = error
        if note:
            self.world.note(f"{note}: {type(answer).__name__}")
        return answer
