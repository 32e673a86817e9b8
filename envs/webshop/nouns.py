"""The nouns of a product's title, by rules.

The public code asks a statistical tagger (spaCy's small English model), which is no package of the usual index. In
titles nearly every word that is no function word, number, unit, colour or adjective is a noun; this takes those.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]{2,}(?:'s)?", re.UNICODE)
_LIST = """
    a about all an and any are as at be best both but by can each even every for from get has have how if in into is
    it its just less like made make makes more most my new no non not of off on one only or other our out over own per
    pro so than that the their them then they this to too two under up use very via was we when which while who will
    with within without you your three four five six seven eight nine ten

    adjustable amazing anti authentic automatic awesome beautiful big black blue bright brown casual cheap classic clean
    clear cold comfortable comfy compact cool cute dark decorative deep delicious different digital dry durable easy
    elegant electric essential extra fast fine flat foldable free fresh full funny gold good gorgeous great green grey
    gray handmade happy hard healthy heavy high hot huge ideal indoor inner large lazy light little long loose lovely
    low lightweight luxury mini modern multi multicolor natural navy nice novelty old orange organic original outdoor
    outer perfect personalized pink plain plus polished portable premium pretty professional pure purple quick quiet
    real red rich rose round rustic safe sexy sheer short silver simple single sleeveless slim slow small smart smooth
    soft solid special stylish strong super sweet tall thick thin tight tiny traditional trendy true ultra unique
    universal unisex upgraded useful various versatile vintage warm waterproof wet white whole wide wild wireless yellow
    young

    cm mm inch inches in ft feet oz ounce ounces lb lbs pound pounds ml liter liters litre kg gram grams mg pcs pc pack
    packs count ct pair pairs xs xl xxl xxxl size sizes"""
_OTHERS = frozenset(_LIST.split())
_ADJECTIVES = ("able", "ible", "ful", "less", "ous", "ive", "ish", "proof", "ly", "ed")
_SHORTEST = 6
"""Words shorter than this are not told by their endings."""


def nouns(title: str) -> set[str]:
    """The nouns, in lower case."""
    found = set()
    for word in _WORD.findall(title.lower()):
        word = word.removesuffix("'s")
        if word in _OTHERS or (len(word) >= _SHORTEST and word.endswith(_ADJECTIVES)):
            continue
        found.add(word)
    return found
