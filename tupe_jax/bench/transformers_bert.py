"""The same training step with Hugging Face's BERT of the same size in PyTorch."""

from tupe_jax.bench.model_speed import random_tokens
from tupe_jax.bench.timing import Work
from tupe_jax.config.schema import Config
from tupe_jax.tokenizers.sentencepiece import MASK_ID
from tupe_jax.utils.errors import UserError


def training_step(config: Config) -> Work:
    """Forward, loss at the masked positions only, backward, clipping, AdamW; float32.

    As in our step, only masked positions are projected to the vocabulary, and dropout is the same.
    Unlike in our step, masks are sampled once, and positions are BERT's (added), which is cheaper.
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
    tokens = torch.from_numpy(random_tokens(config)).long()
    masked_count = round(config.objective.mask_rate * config.data.length)
    positions = torch.rand(tokens.shape).argsort(1)[:, :masked_count]
    rows = torch.arange(len(tokens))[:, None]
    targets = tokens[rows, positions]
    masked_tokens = tokens.clone()
    masked_tokens[rows, positions] = MASK_ID

    def work(count: int) -> None:
        for _ in range(count):
            hidden = bert.bert(masked_tokens).last_hidden_state
            logits = bert.cls(hidden[rows, positions])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            if config.optimizer.clip_norm:
                torch.nn.utils.clip_grad_norm_(bert.parameters(), config.optimizer.clip_norm)
            optimizer.step()
            optimizer.zero_grad()

    return work
