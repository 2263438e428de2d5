"""What a run says about its logits and how concentrated its attention is."""

from geomprobe import tables
from geomprobe.pages.finding import Finding
from geomprobe.pages.wording import number, percent
from geomprobe.run.reading import Run
from geomprobe.tables import count


def tell_entropy(run: Run) -> Finding | None:
    """How concentrated attention is, and how large the logits get."""
    if not tables.has(run, "logits"):
        return None
    data = tables.final_logits(run)
    entropy, share, largest = data["entropy"].dropna(), data["entropy_norm"].dropna(), data["max"].dropna()
    if not len(entropy) or not len(share) or not len(largest):
        return None
    top = data.nlargest(1, "max").to_dict("records")[0]
    values = {"entropy": float(entropy.median()), "entropy_norm": float(share.median()), "n_heads": len(entropy)}
    values |= {"max": float(top["max"]), "n": int(data["n_late"].max())}
    text = (
        f"Attention has an entropy of {number(values['entropy'])} nats at the median head, {percent(share.median())} "
        f"of what even attention would have ({count(len(entropy), 'head')}, n = "
        f"{count(values['n'], 'query', 'queries')} each); the largest logit is {number(values['max'])} "
        f"(layer {int(top['layer'])}, head {int(top['q_head'])})."
    )
    return Finding("Logits", text, "logits", values)
