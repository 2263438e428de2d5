"""Makes the checkpoints that come with the package out of two trained twins, with a card each.

    geomprobe train --preset micro --arm A0 --text NOVELS --out A0    # and --arm A1 --out A1
    python reports/packaged_pair.py make A0 A1
    python reports/packaged_pair.py check NOVELS

The first writes geomprobe/data/checkpoints/plain and qknorm: bfloat16 weights that plain transformers loads, the
tokenizer, and README.md with recipe, corpus, losses and what it writes when asked to go on. The second needs no
training: it computes the held-out losses from the stored weights and the novels, beside those on the cards.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
import transformers

from geomprobe.corpus.sources import read_texts
from geomprobe.evidence.measure import load_trained
from geomprobe.lab.export import export
from geomprobe.lab.recipe import Recipe, read_recipe
from geomprobe.lab.running import Trained, open_training
from geomprobe.lab.supply import TextSupply
from geomprobe.lab.text import NOTE, TextData, TextPlan, open_text, prepare_text
from geomprobe.lab.train import HELD_OUT_TOKENS
from geomprobe.models.cache import user_cache_folder
from geomprobe.models.packaged import PAIR, PLAIN, QKNORM, packaged_folder

WORDS = {PLAIN: "no QK norm", QKNORM: "an RMS norm with gain on queries and keys, before RoPE"}
NOTED = ("arm", "recipe", "fingerprint", "pair", "step", "tokens", "data", "held_out_loss")
BEGINNINGS = ("The old house stood", "She looked at him and", "On Sunday morning the")
CARD = """# {name}

A decoder of {parameters} parameters with {words}, trained with `geomprobe train` (arm {arm}) to have something small to look at
offline. Its twin [{twin}](../{twin}) has the same initial weights and saw the same batches in the same order;
they differ in the QK norm alone. Too small to say anything about large models, or to be of use for anything else.

| | |
|---|---|
| architecture | {family}: {layers} layers, width {hidden}, {heads} query and {kv_heads} key heads of {head_dim}, vocabulary {vocabulary}, tied embeddings, RoPE |
| training | {tokens} tokens, sequences of {length}, {batch} a step; AdamW, highest rate {rate:g}, decay {decay:g}, gradients clipped at {clip:g}; seed {seed} |
| corpus | {documents} English novels of 1719 to 1930, public domain in the United States, from the public repository computationalstylistics/100_english_novels, commit 143e601, without two titles published after 1930 |
| sha256 | of the texts {texts_sha256}, of the tokens {tokens_sha256} |
| held-out loss | {loss_1} nats a token at {length} tokens, {loss_2} at {length_2}, {loss_4} at {length_4} ({held_out} other novels) |
| as stored, in bfloat16 | {stored} nats a token at {length} tokens |
| uniform guessing | {uniform:.3f} nats |
| licence | Apache-2.0, as geomprobe |

What it writes, drawn at temperature .8 (seed 0):

{samples}
"""  # noqa: E501


def main() -> None:
    """Do one or the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make", help="export and describe both")
    making.add_argument("plain", type=Path, help="a trained folder of arm A0")
    making.add_argument("qknorm", type=Path, help="its twin of arm A1")
    making.set_defaults(do=lambda given: make(given.plain, given.qknorm))
    checking = commands.add_parser("check", help="compute the losses on the cards again")
    checking.add_argument("novels", help="the folder of the texts that the cards name")
    checking.set_defaults(do=lambda given: check(given.novels))
    given = parser.parse_args()
    given.do(given)


def make(plain: Path, qknorm: Path) -> None:
    """Export and describe both."""
    pair = {PLAIN: open_training(plain), QKNORM: open_training(qknorm)}
    if len({trained.manifest["pair"] for trained in pair.values()}) != 1:
        sys.exit("These two are no twins: their recipes differ in more than the arm, or their data do.")
    for name, trained in pair.items():
        folder = packaged_folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        family = export(load_trained(trained), folder, tokenizer=trained.checkpoint, dtype=torch.bfloat16)
        (folder / "README.md").write_text(card(name, family, trained, folder), encoding="utf-8")
        note = {key: trained.manifest[key] for key in NOTED}
        (folder / "training.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        print(folder, sum(file.stat().st_size for file in folder.iterdir()) / 1e6, "MB")


def card(name: str, family: str, trained: Trained, folder: Path) -> str:
    """What a person should know of a checkpoint."""
    manifest = trained.manifest
    recipe, size, data = manifest["recipe"], manifest["recipe"]["size"], manifest["data"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    loss = manifest["held_out_loss"]
    length = recipe["length"]
    read = read_recipe(recipe)
    return CARD.format(
        name=name,
        words=WORDS[name],
        twin=QKNORM if name == PLAIN else PLAIN,
        arm=manifest["arm"],
        parameters=f"{manifest['n_parameters']:,}",
        family=family,
        layers=size["layers"],
        hidden=size["hidden"],
        heads=size["heads"],
        kv_heads=size["kv_heads"],
        head_dim=size["head_dim"],
        vocabulary=f"{size['vocab_size']:,}",
        tokens=f"{manifest['tokens']:,}",
        documents=data["n_documents"],
        held_out=len(data["held_out"]),
        texts_sha256=data["texts_sha256"],
        tokens_sha256=data["tokens_sha256"],
        length_2=2 * length,
        length_4=4 * length,
        loss_1=f"{loss['1']:.3f}",
        loss_2=f"{loss['2']:.3f}",
        loss_4=f"{loss['4']:.3f}",
        stored=f"{stored_loss(model, TextSupply(data_of(trained), read), read):.3f}",
        uniform=float(torch.tensor(float(size["vocab_size"])).log()),
        samples="\n".join(f"> {text}\n" for text in samples(model, tokenizer)),
        **{key: recipe[key] for key in ("length", "batch", "rate", "decay", "clip", "seed")},
    )


def check(novels: str) -> None:
    """Print the losses that the training noted beside those of the stored weights on the same sequences."""
    data = None
    for name in PAIR:
        noted = json.loads((packaged_folder(name) / "training.json").read_text(encoding="utf-8"))
        recipe = read_recipe(noted["recipe"])
        data = data or prepare_text(read_texts([novels]), TextPlan(recipe.size.vocab_size, recipe.renamed), say=print)
        if data.sha256 != noted["data"]["tokens_sha256"]:
            sys.exit(
                f"These are not the texts that {name} was trained on: their tokens have another hash than its card's."
            )
        model = transformers.AutoModelForCausalLM.from_pretrained(packaged_folder(name), dtype=torch.float32).eval()
        supply = TextSupply(data, recipe)
        for factor, loss in noted["held_out_loss"].items():
            stored = stored_loss(model, supply, recipe, int(factor))
            length = int(factor) * recipe.length
            print(f"{name}, {length} tokens: {loss:.4f} noted, {stored:.4f} as stored, {stored - loss:+.5f}")


def stored_loss(model: torch.nn.Module, supply: TextSupply, recipe: Recipe, factor: int = 1) -> float:
    """Of what was written, on the same held-out sequences as the training's own."""
    length = factor * recipe.length
    ids = supply.held_out(length, 8 * HELD_OUT_TOKENS // length)
    with torch.no_grad():
        parts = []
        for rows in ids.split(max(1, recipe.batch // factor)):
            logits = model(rows[:, :-1]).logits
            parts.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) * len(rows))
    return float(sum(parts)) / len(ids)


def data_of(trained: Trained) -> TextData:
    """The tokens it was trained on, from the cache."""
    for note in (user_cache_folder() / "lab").glob(f"*/{NOTE}"):
        data = open_text(note.parent)
        if data.sha256 == trained.manifest["data"]["tokens_sha256"]:
            return data
    sys.exit("The tokens that it was trained on are not in the cache; `geomprobe train` with the same text makes them.")


def samples(model: torch.nn.Module, tokenizer) -> list[str]:
    """What it writes behind a few words."""
    texts = []
    for beginning in BEGINNINGS:
        torch.manual_seed(0)
        ids = tokenizer(beginning, return_tensors="pt").input_ids
        made = model.generate(ids, max_new_tokens=48, do_sample=True, temperature=0.8, pad_token_id=0)
        texts.append(" ".join(tokenizer.decode(made[0], skip_special_tokens=True).split()))
    return texts


if __name__ == "__main__":
    main()
