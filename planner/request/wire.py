"""A part of the wire contract: its fields by their paths, each with its words at every door."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from planner.catalog.fields import Words, words
from planner.catalog.records import read
from planner.catalog.spellings import spelled
from planner.core.frozen import frozen
from planner.request.amounts import AMOUNTS


class WireModel(BaseModel):
    """A part of the wire contract: unknown fields are errors, and no type is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    """Built where it is first asked: of one request that is the whole, and no part by itself."""
    within: ClassVar[str | None] = None
    """What stands before a field's name in `data/request/fields.toml`; None where that has none of them."""

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, values: Any) -> Any:
        """Take the name of a value in any spelling that is known."""
        if cls.within is None or not isinstance(values, Mapping):
            return values
        known = cls._named()
        return {
            name: spelled(f"{cls.within}{name}", value, known[name])
            if name in known and isinstance(value, str)
            else value
            for name, value in values.items()
        }

    @classmethod
    @cache
    def _named(cls) -> Mapping[str, tuple[str, ...]]:
        """Return the fields that have a few names, with these; none whose names are in records."""
        paths = read("request", "spellings").keys() - _LINKS
        fields = {
            name: Asked(path=f"{cls.within}{name}", info=info)
            for name, info in cls.model_fields.items()
        }
        return {
            name: tuple(each for each in asked.names if isinstance(each, str))
            for name, asked in fields.items()
            if asked.path in paths or any(isinstance(each, str) for each in asked.names)
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """Return the schema, with the words of each field as its description."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name in properties if cls.within is not None else ():
            said = words().get(f"{cls.within}{name}")
            if said:
                properties[name]["description"] = said.description
        return schema


_LINKS = {"cluster.intra_node", "cluster.inter_node"}
"""Fields that hold more than a name: what reads that also knows the spellings."""
_SIDES = {"ge": "min", "gt": "min", "le": "max", "lt": "max"}


@frozen
class Asked:
    """A field of a request."""

    path: str
    """Dotted, such as recipe.lora.rank."""
    info: FieldInfo

    @property
    def words(self) -> Words:
        """Return what it is called; it may have no words."""
        return words().get(self.path, Words())

    @property
    def name(self) -> str:
        """Return what its flag's value and its input are called."""
        *above, last = self.path.split(".")
        if self.path == "strategy.family":
            return "strategy"
        return f"{above[-1]}_{last}" if len(above) > 1 else last

    @property
    def types(self) -> tuple[Any, ...]:
        """Return what its value may be, beside None."""
        given = self.info.annotation
        branches = (given,) if get_origin(given) in {list, dict, Literal, None} else get_args(given)
        return tuple(each for each in branches if each is not NoneType)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the few names that it may have; none where it may be something else."""
        return get_args(self.types[0]) if get_origin(self.types[0]) is Literal else ()

    @property
    def scalar(self) -> type:
        """Return what a flag takes: true or false, a number, or else text."""
        kinds = () if self.words.reads else (bool, int, float)
        return next((kind for kind in kinds if kind in self.types), str)

    @property
    def bounds(self) -> dict[str, Any]:
        """Return the range of a number, in the words of click's types."""
        found: dict[str, Any] = {}
        for each in self.info.metadata:
            for word, side in _SIDES.items():
                if hasattr(each, word):
                    found |= {side: getattr(each, word)}
                    found |= {f"{side}_open": True} if word in {"gt", "lt"} else {}
        return found

    @property
    def read(self) -> Callable[[str], Any] | None:
        """Return what reads a text with a unit; None where it has none."""
        return AMOUNTS.get(self.words.reads)

    def typed(self, text: str) -> dict[str, Any]:
        """Return the fields that a text sets, by their paths.

        Raises:
            InvalidInputError: it has a unit, and cannot be read.
        """
        section, _, name = self.path.rpartition(".")
        found = self.read(text) if self.read else self.plain(text)
        fields = found if isinstance(found, dict) else {name: found}
        return {f"{section}.{each}".lstrip("."): value for each, value in fields.items()}

    def plain(self, text: str) -> object:
        """Return a text as it is, or the names that it lists: one that means all of them stands for them."""
        kinds = {get_origin(each) for each in self.types}
        if list not in kinds:
            return text
        listed = [name.strip() for name in text.split(",") if name.strip()]
        return next((name for name in listed if name in self.names), listed)


def fields_of(model: type[BaseModel], within: str = "") -> Iterator[Asked]:
    """Yield the fields of a model, those of its sections in their place; what has a flag is asked as a whole."""
    for name, info in model.model_fields.items():
        one = Asked(path=f"{within}{name}", info=info)
        inner = [
            each for each in one.types if isinstance(each, type) and issubclass(each, WireModel)
        ]
        if inner and not one.words.flag:
            yield from fields_of(inner[0], f"{one.path}.")
        else:
            yield one


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object whose fields these are, by their paths."""
    whole: dict[str, Any] = {}
    for path, value in fields.items():
        *above, last = path.split(".")
        section = whole
        for part in above:
            section = section.setdefault(part, {})
        section[last] = value
    return whole
