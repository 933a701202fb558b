"""What the generated prompts are about: everyday topics, and the tasks that can be asked of any of them.

Covers: our own topics, each with words that answers about it tend to use (so that requiring one is easy and
forbidding one is not), and our own task forms. Leaves out: constraints and their mixing (`constrained`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """`name` reads well after "about"; `words` are single lowercase words that belong to it."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PromptTask:
    """`text` holds `{topic}`; a `listing` task asks for several items, any other for running text."""

    name: str
    text: str
    listing: bool = False


TASKS: tuple[PromptTask, ...] = (
    PromptTask("fact", "Tell me a fact about {topic}."),
    PromptTask("tip", "Give a beginner one tip about {topic}."),
    PromptTask("describe", "Describe {topic}."),
    PromptTask("child", "Explain {topic} to a child."),
    PromptTask("why", "Say why people care about {topic}."),
    PromptTask("question", "Write a question that a student might ask about {topic}."),
    PromptTask("slogan", "Write a slogan for a museum about {topic}."),
    PromptTask("title", "Suggest a title for a book about {topic}."),
    PromptTask("message", "Write a text message to a friend about {topic}."),
    PromptTask("opening", "Write the opening of a story about {topic}."),
    PromptTask("words", "List things that have to do with {topic}.", listing=True),
    PromptTask("reasons", "Give reasons to learn about {topic}.", listing=True),
    PromptTask("ideas", "Suggest activities for a school day about {topic}.", listing=True),
)

_TOPIC_LINES = """
bees: honey flowers hive pollen
the moon: night light earth sky
rivers: water fish sea flow
volcanoes: lava rock hot mountain
bread: flour oven dough bake
cats: fur sleep play whiskers
bicycles: wheels ride road pedals
winter: snow cold ice coat
libraries: books read quiet shelves
the ocean: water waves fish deep
chess: king board move think
coffee: beans cup morning drink
trees: leaves wood roots shade
rain: clouds water umbrella drops
soccer: ball team goal field
dreams: sleep night mind remember
bridges: river cross steel road
music: song listen sound dance
gardens: plants flowers soil grow
robots: machines work metal program
elephants: trunk large africa memory
the sun: light heat star energy
mathematics: numbers solve learn problem
pizza: cheese dough oven tomato
trains: tracks station travel fast
friendship: trust help together share
dogs: loyal walk play bark
clouds: sky rain white float
photography: camera light picture lens
deserts: sand dry hot camel
birds: wings fly nest sing
cooking: food kitchen heat recipe
sleep: rest night bed body
airplanes: fly wings pilot sky
castles: stone king walls tower
computers: work data screen fast
mountains: climb high peak snow
tea: leaves cup hot drink
dinosaurs: ancient bones large extinct
paintings: color artist brush canvas
swimming: water pool breath arms
spiders: web legs silk insects
breakfast: eggs morning eat toast
languages: words speak learn people
kites: wind string fly sky
glaciers: ice slow cold mountain
markets: buy sell fruit people
clocks: time hands hour minute
whales: ocean large song mammal
poetry: words rhyme feeling lines
earthquakes: ground shake damage waves
running: legs shoes breath miles
butterflies: wings color caterpillar flowers
candles: wax flame light wick
apples: fruit tree red sweet
teachers: school learn students class
lighthouses: sea light ships tower
camping: tent fire forest stars
magnets: iron pull poles metal
islands: sea beach sand water
kindness: help people smile share
newspapers: read news paper print
horses: ride fast mane gallop
recycling: plastic paper waste earth
chocolate: sweet cocoa milk dark
stars: night sky light far
hospitals: doctors nurses care patients
theater: stage actors play audience
bridges made of rope: cross river hands swing
old maps: paper explore places roads
shoes: feet walk leather laces
frogs: jump pond green water
holidays: family travel rest fun
wind: air blow leaves energy
penguins: ice swim cold birds
honesty: truth trust people words
the heart: blood pump body beat
rice: water field cook grain
circuses: clowns tent show tricks
submarines: water deep sea navy
""".strip()


def _parse(line: str) -> Topic:
    name, words = line.split(": ")
    return Topic(name, tuple(words.split()))


TOPICS: tuple[Topic, ...] = tuple(_parse(line) for line in _TOPIC_LINES.splitlines())
