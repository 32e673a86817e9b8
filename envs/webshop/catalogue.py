"""A catalogue of our own: invented products in 24 categories, with attributes, options and prices, and a wish for each.

The same seed and count give the same products, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from envs.webshop.products import Product, Wish

COUNT = 2400
"""Products of the embedded catalogue."""
SEED = 233

_SIZES = ("x-small", "small", "medium", "large", "x-large", "xx-large")
_COLORS = (
    "black", "white", "grey", "navy", "sky blue", "forest green", "olive", "burgundy", "red", "coral", "pink",
    "lavender", "yellow", "beige", "brown", "silver",
)  # fmt: skip
_WOODS = ("oak", "walnut", "cherry", "birch", "pine")
_SHOES = tuple(f"{size}{half}" for size in range(6, 12) for half in ("", ".5"))
_BRANDS = (
    ("Al", "Bren", "Cor", "Dal", "Ester", "Fen", "Gal", "Har", "Is", "Jor", "Kel", "Lum", "Mar", "Nor", "Or", "Pel",
     "Quin", "Ros", "Sol", "Tam", "Ul", "Ven", "Wil", "Yar", "Zan"),
    ("a", "bri", "cano", "do", "ella", "fin", "go", "ivo", "la", "mont", "nia", "ora", "pe", "ria", "sto", "tane",
     "va", "wick", "xa", "zor"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kind:
    """Products of one category. `nouns` are what they are called, `adds` what a title may end with."""

    category: str
    path: str
    query: str
    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    prices: tuple[float, float]
    adds: tuple[str, ...]


_KINDS = (
    _Kind("fashion", "Clothing › Women › Dresses", "women's dresses",
          ("Summer Dress", "Wrap Dress", "Evening Gown", "Shirt Dress", "Pinafore"),
          ("long sleeve", "machine wash", "cotton blend", "v neck", "elastic waist", "quick drying", "high waist"),
          {"color": _COLORS, "size": _SIZES}, (18, 90), ("with Pockets", "for Weddings", "for Work", "")),
    _Kind("fashion", "Clothing › Men › Shirts", "men's shirts",
          ("Oxford Shirt", "Polo Shirt", "Flannel Shirt", "Henley", "T-Shirt"),
          ("short sleeve", "machine wash", "slim fit", "moisture wicking", "button closure", "classic fit", "stretch"),
          {"color": _COLORS, "size": _SIZES}, (12, 60), ("for Travel", "2-Pack", "with Chest Pocket", "")),
    _Kind("fashion", "Shoes › Women › Boots", "women's boots",
          ("Ankle Boots", "Rain Boots", "Hiking Boots", "Riding Boots", "Snow Boots"),
          ("rubber sole", "arch support", "memory foam", "side zipper", "slip resistant", "faux fur lining"),
          {"color": _COLORS, "size": _SHOES}, (30, 140), ("with Low Heel", "for Winter", "")),
    _Kind("fashion", "Shoes › Men › Sneakers", "men's sneakers",
          ("Running Shoes", "Tennis Shoes", "Canvas Sneakers", "Walking Shoes", "Trainers"),
          ("rubber sole", "lace up", "breathable mesh", "wide fit", "shock absorbing", "non slip"),
          {"color": _COLORS, "size": _SHOES}, (25, 130), ("for Road", "for the Gym", "")),
    _Kind("fashion", "Jewellery › Necklaces", "necklaces",
          ("Pendant Necklace", "Choker", "Locket", "Pearl Necklace", "Chain"),
          ("sterling silver", "nickel free", "gold plated", "adjustable length", "hand made"),
          {"metal": ("silver", "gold", "rose gold"), "length": ("16 inch", "18 inch", "20 inch")}, (9, 120),
          ("with Gift Box", "for Birthdays", "")),
    _Kind("garden", "Home › Furniture › Tables", "coffee tables",
          ("Coffee Table", "Side Table", "Console Table", "Nesting Table", "Bedside Table"),
          ("solid wood", "easy assembly", "storage shelf", "space saving", "scratch resistant", "heavy duty"),
          {"finish": _WOODS, "size": ("small", "medium", "large")}, (45, 420),
          ("with Drawer", "for Living Room", "")),
    _Kind("garden", "Home › Furniture › Chairs", "office chairs",
          ("Desk Chair", "Dining Chair", "Rocking Chair", "Folding Chair", "Bar Stool"),
          ("lumbar support", "easy clean", "height adjustable", "high density foam", "faux leather", "steel frame"),
          {"color": _COLORS, "pack": ("1 piece", "set of 2", "set of 4")}, (35, 380), ("for Home Office", "")),
    _Kind("garden", "Home › Bedding › Blankets", "blankets",
          ("Throw Blanket", "Quilt", "Weighted Blanket", "Wool Blanket", "Picnic Blanket"),
          ("super soft", "machine washable", "hypoallergenic", "double sided", "oeko tex certified"),
          {"color": _COLORS, "size": ("50x60 inch", "60x80 inch", "90x90 inch")}, (15, 150),
          ("for Sofa", "for Bed", "")),
    _Kind("garden", "Home › Lighting › Lamps", "table lamps",
          ("Desk Lamp", "Floor Lamp", "Night Light", "Bedside Lamp", "Reading Lamp"),
          ("dimmable", "energy efficient", "touch control", "usb charging port", "glass shade", "warm light"),
          {"color": _COLORS}, (14, 160), ("with Bulb", "with Remote", "")),
    _Kind("garden", "Home › Curtains", "curtains",
          ("Blackout Curtains", "Sheer Curtains", "Shower Curtain", "Kitchen Curtains", "Door Curtain"),
          ("machine washable", "noise reducing", "thermal insulated", "water resistant", "rod pocket"),
          {"color": _COLORS, "size": ("42x63 inch", "52x84 inch", "52x96 inch")}, (12, 85), ("2 Panels", "")),
    _Kind("garden", "Garden › Planters", "planters",
          ("Flower Pot", "Hanging Planter", "Window Box", "Raised Bed", "Plant Stand"),
          ("drainage holes", "weather resistant", "self watering", "hand painted", "recycled plastic"),
          {"color": _COLORS, "size": ("6 inch", "8 inch", "12 inch")}, (8, 95), ("for Balcony", "for Herbs", "")),
    _Kind("kitchen", "Kitchen › Cookware › Pans", "frying pans",
          ("Frying Pan", "Saucepan", "Wok", "Griddle", "Casserole"),
          ("non stick", "dishwasher safe", "induction ready", "cast iron", "oven safe", "pfoa free"),
          {"size": ("8 inch", "10 inch", "12 inch"), "color": ("black", "grey", "red", "copper")}, (16, 140),
          ("with Lid", "with Steel Handle", "")),
    _Kind("kitchen", "Kitchen › Kettles", "kettles",
          ("Electric Kettle", "Tea Kettle", "Gooseneck Kettle", "Travel Kettle"),
          ("bpa free", "auto shut off", "stainless steel", "temperature control", "cordless"),
          {"color": ("black", "white", "red", "mint"), "capacity": ("0.8 liter", "1.0 liter", "1.7 liter")}, (18, 110),
          ("for Coffee", "with Infuser", "")),
    _Kind("kitchen", "Kitchen › Storage › Containers", "food storage containers",
          ("Lunch Box", "Storage Jars", "Bento Box", "Cereal Container", "Spice Jars"),
          ("leak proof", "bpa free", "microwave safe", "airtight lid", "stackable", "freezer safe"),
          {"color": _COLORS, "pack": ("2 pieces", "6 pieces", "12 pieces")}, (9, 60), ("with Labels", "for Kids", "")),
    _Kind("electronics", "Electronics › Audio › Headphones", "headphones",
          ("Headphones", "Earbuds", "Headset", "Sports Earphones", "Studio Headphones"),
          ("noise cancelling", "fast charging", "water resistant", "long battery life", "hands free", "foldable"),
          {"color": _COLORS}, (15, 260), ("with Microphone", "with Case", "")),
    _Kind("electronics", "Electronics › Accessories › Chargers", "phone chargers",
          ("Wall Charger", "Wireless Charger", "Power Bank", "Car Charger", "Charging Cable"),
          ("fast charging", "overheat protection", "usb c port", "travel size", "braided nylon"),
          {"color": ("black", "white", "blue", "red"), "power": ("15 watt", "30 watt", "65 watt")}, (9, 80),
          ("2-Pack", "for Phone and Tablet", "")),
    _Kind("electronics", "Electronics › Cameras › Tripods", "tripods",
          ("Camera Tripod", "Phone Tripod", "Monopod", "Selfie Stick", "Desk Tripod"),
          ("carbon fiber", "easy carry", "quick release", "height adjustable", "non slip feet"),
          {"height": ("40 inch", "55 inch", "67 inch"), "color": ("black", "silver", "orange")}, (14, 150),
          ("with Bag", "with Remote", "")),
    _Kind("electronics", "Electronics › Computers › Keyboards", "keyboards",
          ("Mechanical Keyboard", "Wireless Keyboard", "Number Pad", "Compact Keyboard"),
          ("hot swappable", "plug and play", "quiet keys", "backlit", "rechargeable battery"),
          {"layout": ("us", "uk", "german", "french"), "color": ("black", "white", "grey", "pink")}, (20, 170),
          ("with Wrist Rest", "for Office", "")),
    _Kind("beauty", "Beauty › Skin Care › Creams", "face moisturizers",
          ("Face Cream", "Hand Cream", "Night Cream", "Body Lotion", "Eye Cream"),
          ("fragrance free", "cruelty free", "sensitive skin", "hyaluronic acid", "dry skin", "paraben free", "vegan"),
          {"size": ("1 ounce", "1.7 ounce", "3.4 ounce"), "scent": ("unscented", "rose", "cucumber", "citrus")},
          (7, 70), ("for Daily Use", "for Men", "")),
    _Kind("beauty", "Beauty › Hair Care › Shampoo", "shampoo",
          ("Shampoo", "Conditioner", "Hair Mask", "Shampoo Bar", "Hair Oil"),
          ("sulfate free", "color safe", "dry hair", "argan oil", "damaged hair", "coconut oil", "anti dandruff"),
          {"size": ("8 ounce", "16 ounce", "32 ounce"), "scent": ("mint", "lavender", "coconut", "unscented")}, (6, 45),
          ("for Curly Hair", "for Families", "")),
    _Kind("beauty", "Beauty › Tools › Brushes", "makeup brushes",
          ("Makeup Brush Set", "Powder Brush", "Hair Brush", "Foundation Sponge", "Lip Brush"),
          ("cruelty free", "easy clean", "soft bristles", "travel case", "synthetic hair"),
          {"color": ("pink", "black", "rose gold", "white"), "pieces": ("5 pieces", "10 pieces", "15 pieces")}, (6, 55),
          ("with Bag", "")),
    _Kind("grocery", "Grocery › Snacks", "snack bars",
          ("Granola Bars", "Trail Mix", "Rice Crackers", "Fruit Chips", "Protein Bars"),
          ("gluten free", "low sugar", "non gmo", "plant based", "high protein", "nut free", "individually wrapped"),
          {"flavor": ("chocolate", "almond", "berry", "apple cinnamon", "sea salt"),
           "size": ("6 count", "12 count", "24 count")}, (5, 48), ("for Lunch", "Variety Box", "")),
    _Kind("grocery", "Grocery › Beverages › Tea", "tea",
          ("Green Tea", "Herbal Tea", "Black Tea", "Iced Tea", "Chai"),
          ("caffeine free", "usda organic", "fair trade", "loose leaf", "sugar free", "zero calories"),
          {"flavor": ("peppermint", "ginger lemon", "jasmine", "chamomile", "vanilla"),
           "size": ("20 bags", "50 bags", "100 bags")}, (4, 38), ("in Tin", "Sampler", "")),
    _Kind("grocery", "Grocery › Pantry › Sauces", "pasta sauces",
          ("Pasta Sauce", "Hot Sauce", "Pesto", "Curry Paste", "Salad Dressing"),
          ("gluten free", "dairy free", "no artificial colors", "keto friendly", "low sodium", "soy free"),
          {"flavor": ("classic", "garlic", "smoky", "mild", "extra hot"), "size": ("8 ounce", "12 ounce", "24 ounce")},
          (4, 32), ("Family Size", "")),
)  # fmt: skip

CATEGORIES = tuple(kind.query for kind in _KINDS)


def products(count: int = COUNT, seed: int = SEED) -> Iterator[Product]:
    """`count` products, the categories taking turns; each with its own draws, so that a longer catalogue begins
    with a shorter one."""
    for number in range(count):
        yield _product(number, Random(f"{seed}/{number}"))


def _product(number: int, draw: Random) -> Product:
    kind = _KINDS[number % len(_KINDS)]
    brand = "".join(draw.choice(part) for part in _BRANDS)
    noun = draw.choice(kind.nouns)
    attributes = draw.sample(kind.attributes, draw.randint(3, min(5, len(kind.attributes))))
    options = {
        name: tuple(sorted(draw.sample(values, draw.randint(2, min(6, len(values)))), key=values.index))
        for name, values in kind.options.items()
    }
    low, high = kind.prices
    price = round(draw.uniform(low, high)) - 0.01
    pricing = (price, round(price + draw.randint(5, 25), 2)) if draw.random() < 0.1 else (price,)
    first, second = attributes[:2]
    end = draw.choice(kind.adds)
    asked = sorted(draw.sample(attributes, 2))
    return Product(
        asin=_asin(number),
        title=" ".join(filter(None, [brand, first.title(), noun, end, f"- {second.title()}"])),
        category=kind.category,
        query=kind.query,
        path=f"{kind.path} › {noun}",
        pricing=pricing,
        rating=f"{draw.uniform(3, 5):.1f}" if draw.random() < 0.6 else "N.A.",
        description=f"{_article(noun)} {noun.lower()} by {brand}: {', '.join(attributes)}. "
        f"One of our {kind.query}, at home in any {kind.path.split(' › ')[-1].lower()} collection.",
        bullets=tuple(
            f"{each.capitalize()}: every {noun.lower()} of this line has it." for each in attributes
        ),
        attributes=tuple(attributes),
        options=options,
        wish=Wish(f"Find me {asked[0]}, {asked[1]} {noun.lower()} among {kind.query}", tuple(asked)),
        wishes=tuple(_wishes(kind, noun, attributes, options, draw)),
    )


def _wishes(
    kind: _Kind, noun: str, attributes: list[str], options: dict[str, tuple[str, ...]], draw: Random
) -> Iterator[Wish]:
    """How a customer would say it: some attributes and one value of each option."""
    asked = draw.sample(attributes, draw.randint(1, 3))
    chosen = [draw.choice(values) for values in options.values()]
    named = zip(options, chosen, strict=True)
    wants = " and ".join(f"the {name} {value}" for name, value in named)
    begin = draw.choice(("i am looking for", "i need", "find me", "i would like to buy"))
    yield Wish(
        f"{begin} {_article(noun).lower()} {noun.lower()} that is {' and '.join(asked)}, in {wants}",
        tuple(asked),
        tuple(chosen),
    )


def _article(noun: str) -> str:
    if noun.endswith("s"):
        return "Some"
    return "An" if noun[0] in "AEIOU" else "A"


def _asin(number: int) -> str:
    """Ten characters that begin with B, as such numbers do; a large number's digits are spread."""
    digits = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
    spread, text = (number * 7_654_321 + 1_234_567) % len(digits) ** 8, ""
    for _ in range(8):
        spread, digit = divmod(spread, len(digits))
        text = digits[digit] + text
    return f"BZ{text}"
