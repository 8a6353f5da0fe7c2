"""Which docstrings have no verb: a simple check, for `scripts/structure.py` and for whoever mends them.

    python -m scripts.sentences [FOLDER ...]    the docstrings without a verb, with file and line

Of a docstring the first sentence counts. It has a verb if one of its words is in VERBS. A sentence that opens with a
relative word ("What a worker knows.") is only a clause, so it needs two.

How it errs: a verb that is not in the list is missed ("It wobbles."). A noun that is spelled as a verb counts as one.
So forms that are mostly nouns here (NOUNS: "steps", "runs") count only at the beginning of the sentence, after a
pronoun, and as the third word ("This launcher starts ..."). A relative clause in the middle ("The step that waits.")
counts as a verb although the sentence has none.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS = _words(
    """
    accept accepts accumulate acknowledge acknowledged add adds agree allocate allocates allow allows am answer
    answered answers append applies apply are arrive arrived arrives ask asked asks assign assigns average averages
    avoid be bears become becomes began begin begins belong belongs bind block bound bounds break bring brings broke
    build builds bundle bundles call calls came can cancel cannot captures carries carry catch change changes check
    checks choose chooses close closes collect collects combine come comes compare compares compile compress
    compresses compute computes concatenate conducts connect connects consist consists contain contains continue
    continues contribute contributes convert copies copy cost costs could count counted counts create creates cut
    cuts decide decides declare decode decodes define defines delete deliver delivers depend depends derive describe
    describes detach did die dies differ differs discard distribute divide divides do does draw draws drive drives
    drop drops emulate encode encodes end ends enter enters equal equals estimate estimates evaluate evaluates
    exceed exceeds exist exists exit exits expect expects expel expels explains export expose exposes extend fail
    fails fetch fill fills find finds finish finishes fit fits flush follow follows forbid forget forgets fork forks
    form format formats forward forwards free gate gather gathers gave get gets give gives go goes grants group
    groups grow grows guard guards had handle handles happen happens has have hear hears help helps hide hold holds
    identify ignore ignores imply import include includes increase indicate initialise insert install interpret
    interprets interrupt is iterate join joins judge judged judges keep keeps kept kill kills know knows lack lacks
    last lasts launch launches lead leads leave leaves left lend lends let lets lie lies limit limits list listen
    listens lists live lives load loads locate locates lock log logs look looks lose loses lost made make makes map
    maps mark marks match matches may mean means measure measures meet meets merge merges might miss misses monitor
    move moved moves multiply must name names need needs normalise note notes notice obey occur offer open opens
    order overlap overlaps own owns pack pair parse parses pass passes pause pauses permit pick picks place places
    plan play plot plots point points poll post predict prepare prepares prevent prevents print prints process
    produce produces prove proves provide provides publish publishes pull push pushes put puts quantise queries
    query raise raises ran rank reach reaches react read reads receive receives recognise reconnect record records
    redraw reduce refer refers refuse refuses register registers reject rejects release releases remember remembers
    remove removes renames render repeat repeats replace replaces reply report reports represent represents request
    require requires reserve reserves reset resolve respond restart restarts restore restores rests result resume
    resumes retry return returns reuse rise round rounds route routes run runs save saves saw say says schedule
    schedules see seem seems seen sees select selects send sends sent separate serve serves set sets shall share
    shares shift should show shows shut shuts sign signal signals signs simulate simulates skip skips sleep slow
    sort spawn spawns speak speaks split splits spread stand stands start started starts stay stays step steps stop
    stops store stores suffices sum summarise summarises sums supervise supervises suppress survive survives swap
    take taken takes talk talks teach tell tells terminate test think throw time times told took touch touches trace
    track train trains translate translates travel travels treat treats tries trust try turn turns unite unpack
    update updates use used uses validate vanish verify vote wait waits wake wakes want wants warn warns was watch
    watches weigh weighs went were will win wins withdraw work works would wrap wraps write writes written wrote
    yield yields
    """
)
NOUNS = _words(
    """
    answer answers average averages block bound bounds bundle call calls change changes check checks copies copy
    cost costs count counts cut end ends equal exit exits export fail fit fits fork form format formats forward free
    gate group groups help import interrupt join kept kill last leaves left limit limits list lists live lives load
    lock log logs look looks lost made map maps mark mean means measure measures name names need note notes open
    order own pair part pass passes pause pauses pick place places plan play plot plots point points poll post print
    process pull push pushes queries query rank read record records release reply report reports request reset
    result return round rounds route routes run runs save schedule schedules seen sent separate set sets share
    shares shift show sign signal signals signs slow sort spread start started starts step steps stop stops store
    stores sum sums taken test time times told trace track train travel trust try turn turns update updates use used
    vote wait waits watch work works write written
    """
)
PRONOUNS = _words("and everybody everything he i it nobody not nothing or she that they this to we what which who you")
DETERMINERS = _words("a an each one the these this")
RELATIVE = _words("how if those what whatever when where whether which while who whoever whom whose why")


def first_sentence(docstring: str) -> str:
    paragraph = re.sub(r"`[^`]*`", "Name", docstring.strip().split("\n\n")[0])
    return re.split(r"(?<=[.?!])\s", re.sub(r"\s+", " ", paragraph))[0]


def verbs(sentence: str) -> int:
    """Returns how many words of it are taken for verbs."""
    words = re.findall(r"[a-z']+", sentence.lower())
    return sum(
        word in VERBS and (word not in NOUNS or at == 0 or words[at - 1] in PRONOUNS or _third(words, at))
        for at, word in enumerate(words)
    )


def _third(words: list[str], at: int) -> bool:
    """Returns True for `starts` in "This launcher starts ..."."""
    return at == 2 and words[0] in DETERMINERS and words[at].endswith("s")


def has_verb(docstring: str) -> bool:
    sentence = first_sentence(docstring)
    opening = re.match(r"[A-Za-z]*", sentence)
    clause = opening is not None and opening[0].lower() in RELATIVE
    return verbs(sentence) > clause


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def main(folders: list[str]) -> None:
    total = without = 0
    for folder in folders or ["paceline"]:
        for file in sorted(Path(folder).rglob("*.py")):
            for line, text in docstrings(ast.parse(file.read_text(encoding="utf-8"))):
                total += 1
                if not has_verb(text):
                    without += 1
                    print(f"{file}:{line}: {first_sentence(text)}")
    print(f"{without} of {total} docstrings have no verb ({100 * without / max(total, 1):.1f} %)")


if __name__ == "__main__":
    main(sys.argv[1:])
