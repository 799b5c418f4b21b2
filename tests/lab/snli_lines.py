"""Lines like those of SNLI's own files."""


def snli_line(label="entailment", **changes):
    premise = (
        "(ROOT (S (NP (DT A) (NN dog)) (VP (VBZ is) (VP (VBG chasing) "
        "(NP (DT a) (JJ small) (NN cat)) (PP (IN on) (NP (NN grass))))) (. .)))"
    )
    hypothesis = "(ROOT (S (NP (DT A) (NN dog)) (VP (VBZ chases) (NP (DT a) (NN cat)))))"
    row = {"gold_label": label, "sentence1_parse": premise, "sentence2_parse": hypothesis}
    return {**row, "pairID": "1", **changes}
