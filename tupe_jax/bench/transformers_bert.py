"""Hugging Face's BERT in PyTorch: the same size and the same work, for comparison."""

from tupe_jax.bench.model_speed import random_words
from tupe_jax.bench.timing import Work
from tupe_jax.config.schema import Config
from tupe_jax.tokenizers.sentencepiece import MASK_ID
from tupe_jax.utils.errors import UserError


def training_step(config: Config) -> Work:
    """Forward, loss at the masked positions only, backward, clipping, AdamW; float32.

    Like ours it projects no other positions to words, and has the same dropout; its masks are
    drawn once and not at every step, and its positions are BERT's (added), which cost less.
    """
    try:
        import torch
        from transformers import BertConfig, BertForMaskedLM
    except ImportError as error:
        raise UserError(
            f"--against=transformers needs {error.name}; pip install 'tupe_jax[transformers]'"
        ) from None
    model_config = config.model
    bert = BertForMaskedLM(
        BertConfig(
            vocab_size=model_config.vocab_size,
            hidden_size=model_config.hidden_size,
            num_hidden_layers=model_config.num_layers,
            num_attention_heads=model_config.num_heads,
            intermediate_size=model_config.mlp_size,
            hidden_dropout_prob=model_config.dropout,
            attention_probs_dropout_prob=model_config.attention_dropout,
            max_position_embeddings=max(config.data.length, 512),
        )
    )
    bert.train()
    optimizer = torch.optim.AdamW(
        bert.parameters(),
        lr=config.optimizer.peak_learning_rate,
        weight_decay=config.optimizer.weight_decay,
    )
    words = torch.from_numpy(random_words(config)).long()
    slots = round(config.objective.mask_rate * config.data.length)
    positions = torch.rand(words.shape).argsort(1)[:, :slots]
    rows = torch.arange(len(words))[:, None]
    targets = words[rows, positions]
    hidden_words = words.clone()
    hidden_words[rows, positions] = MASK_ID

    def work(count: int) -> None:
        for _ in range(count):
            hidden = bert.bert(hidden_words).last_hidden_state
            logits = bert.cls(hidden[rows, positions])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            if config.optimizer.clip_norm:
                torch.nn.utils.clip_grad_norm_(bert.parameters(), config.optimizer.clip_norm)
            optimizer.step()
            optimizer.zero_grad()

    return work
