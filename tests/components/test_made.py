"""Types that are made while a job is built."""

import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Annotated

from pyspark import cloudpickle

from streamwork import Digits, Event
from streamwork.components.made import make_event, make_record
from streamwork.components.schema import arrow_schema, fields_of

FIELDS = {"card": str, "amount": float | None, "price": Annotated[Decimal, Digits(12, 2)]}


class Plain(Event):
    card: str


def test_a_type_is_made_once():
    assert make_event("Joined", FIELDS) is make_event("Joined", FIELDS)
    assert make_event("Joined", FIELDS) is not make_event("Joined", {"card": str})
    assert make_event("Joined", FIELDS)("c", None, Decimal("1.00")).card == "c"
    assert arrow_schema(make_event("Joined", FIELDS)).names == list(FIELDS)


def test_a_made_record_has_defaults():
    record = make_record("Kept", {"total": (int, 0), "name": (str | None, None)})
    assert (record().total, record().name) == (0, None)
    assert fields_of(record)["name"].nullable


def test_a_made_type_survives_pickling_in_this_process():
    made = make_event("Joined", FIELDS)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert pickle.loads(dumps(made)) is made
        assert pickle.loads(dumps(made("c", 1.0, Decimal("2.50")))) == made("c", 1.0, Decimal("2.50"))
        assert pickle.loads(dumps(Plain)) is Plain


def test_another_process_makes_the_type_again(tmp_path):
    made, record = make_event("Joined", FIELDS), make_record("Kept", {"total": (int, 0)})
    (tmp_path / "types").write_bytes(cloudpickle.dumps((made, record, made("c", 1.0, Decimal("2.50")))))
    script = (
        "import pickle, sys; made, record, one = pickle.load(open(sys.argv[1], 'rb'));"
        "assert type(one) is made; print(one, made.__struct_fields__, record())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "types")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("Joined(card='c', amount=1.0, price=Decimal('2.50')) ('card', 'amount', 'price')")
