"""Asks croniter 1.0.5 when random cron expressions come due: `ask.py SEED COUNT`.

Lines that begin with `# ` name the versions used. Every other line is one answer, with tabs between its fields: the expression, a
start in Unix seconds, and the next three times, or `refused` where croniter raises. croniter sometimes overlooks a day (in `31,l`
the last day of a short month, in `1,31` the 1st of March). The overlooked time is then written with a `+` before it, and the
search for the next time starts from there.
"""

import sys
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from random import Random

from croniter import croniter

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "sun mon tue wed thu fri sat".split()
FIELDS = [(0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 7, WEEKDAYS), (0, 59, [])]
ODD = ["?", "", "x", "*/", "5/", "1/2/3", "1-5-7", "-5", "*-5", "5-*", "l-5", "L/2", "1-5/", "*/0", "l", "fri", "mar", "5l", "l5"]


class Dice(Random):
    def maybe(self, chance):
        return self.random() < chance

    def name(self, low, names, value):
        """A value as it may be written."""
        if names and self.maybe(0.4):
            name = names[(value - low) % len(names)]
            return self.choice([name, name.upper(), name.capitalize()])
        return self.choice(["%d", "%d", "%d", "%02d"]) % value

    def value(self, low, high):
        if self.maybe(0.01):
            return self.choice([0, high + 1, high + 10])
        return self.randint(low, high)

    def item(self, field):
        low, high, names = FIELDS[field]
        said = lambda: self.name(low, names, self.value(low, high))
        step = lambda: "/%d" % self.choice([1, 2, 3, 4, 5, 7, 10, 15, 20, 30, self.randint(1, 120)])
        nth = lambda: "#%d" % self.randint(1, 5) if field == 4 and self.maybe(0.25) else ""
        dice = self.random()
        if dice < 0.01:
            return self.choice(ODD)
        if dice < 0.04:
            return "*" + nth()
        if dice < 0.2:
            return "*" + step()
        if dice < 0.24:
            return said() + step()
        if dice < 0.26:
            return "%d-%d" % (low, high - (field == 4 and self.maybe(0.5))) + nth()
        if dice < 0.5:
            ends = sorted([self.value(low, high), self.value(low, high)], reverse=self.maybe(0.02))
            last = "l" if field == 2 and self.maybe(0.1) else self.name(low, names, ends[1])
            return self.name(low, names, ends[0]) + "-" + last + (step() if self.maybe(0.4) else "") + nth()
        if field == 2 and dice < 0.6:
            return self.choice(["l", "L", "29", "30", "31"])
        return said() + nth()

    def field(self, field):
        if self.maybe(0.35):
            return "*"
        return ",".join(self.item(field) for _ in range(self.choice([1, 1, 1, 1, 2, 2, 3, 5])))

    def expression(self):
        fields = [self.field(field) for field in range(5)]
        if self.maybe(0.02):
            fields.append(self.choice(["0", "00", "*", "*/10", "30"]))
        if self.maybe(0.01):
            fields.pop()
        if self.maybe(0.005):
            return self.choice(["@daily", "@hourly", "@reboot", "@yearly"])
        return " ".join(fields)

    def start(self):
        """Some time of this century; often near the end of a February or of another month."""
        start = datetime(2000, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=self.randrange(100 * 365 * 86400))
        if self.maybe(0.3):
            start = start.replace(month=self.choice([2, 3, start.month]), day=self.choice([1, 28]))
        if self.maybe(0.3):
            start = start.replace(second=self.choice([0, 59]))
        return int(start.timestamp())


def next_time(cron, start):
    """The next time, and whether croniter overlooks it: at the beginning of each day it is asked again."""
    found = int(cron.get_next(start_time=start))
    days, months = cron.expanded[2], cron.expanded[3]
    late = [day for day in days if day == "l" or (day != "*" and day > 28)]
    if len(days) < 2 or not late:
        return found, False
    midnight = start - start % 86400 + 86400
    while midnight <= found:
        if months == ["*"] or datetime.fromtimestamp(midnight, timezone.utc).month in months:
            again = int(cron.get_next(start_time=midnight - 1))
            if again < found:
                return again, True
        midnight += 86400
    return found, False


def ask(expression, start):
    times = []
    try:
        cron = croniter(expression)
        for _ in range(3):
            start, overlooked = next_time(cron, start)
            times.append("+%d" % start if overlooked else "%d" % start)
    except Exception:
        return "refused"
    return " ".join(times)


def main(seed, count):
    if version("croniter") != "1.0.5":
        sys.exit("croniter 1.0.5 is needed, and this is " + version("croniter"))
    print("# croniter 1.0.5: ask.py %d %d" % (seed, count))
    dice = Dice(seed)
    for _ in range(count):
        expression, start = dice.expression(), dice.start()
        print(expression, start, ask(expression, start), sep="\t")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
