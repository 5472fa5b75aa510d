"""Writes a Llama with random weights as GGUF: `write_gguf.py FILE [small]`, with the packages of gguf.lock alone."""

import sys

import gguf  # type: ignore[import-not-found]
import numpy as np

VOCABULARY = 1024
WIDTH, LAYERS, HEADS, INNER = (128, 4, 4, 256) if sys.argv[2:] == ["small"] else (384, 6, 6, 1024)
"""One core decodes about 2 requests of 80 tokens a second, four at a time."""
SPECIAL = (b"<unk>", b"<s>", b"</s>")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Types of tokens."""


def main(path: str) -> None:
    """Write it. Any prompt of token ids below VOCABULARY can be asked."""
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_context_length(2048)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(VOCABULARY)
    out.add_file_type(0)
    _add_tokenizer(out)
    _add_weights(out)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _add_tokenizer(out: gguf.GGUFWriter) -> None:
    of_bytes = [f"<0x{byte:02X}>".encode() for byte in range(256)]
    first = len(SPECIAL) + len(of_bytes)
    words = [f"\u2581w{number}".encode() for number in range(first, VOCABULARY)]
    out.add_tokenizer_model("llama")
    out.add_token_list([*SPECIAL, *of_bytes, *words])
    out.add_token_scores([0.0] * len(SPECIAL) + [-1000.0] * 256 + [-float(number) for number in range(len(words))])
    out.add_token_types([UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words))
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)


def _add_weights(out: gguf.GGUFWriter) -> None:
    luck = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return (luck.standard_normal(shape) * 0.05).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    out.add_tensor("token_embd.weight", drawn(VOCABULARY, WIDTH))
    out.add_tensor("output_norm.weight", ones)
    out.add_tensor("output.weight", drawn(VOCABULARY, WIDTH))
    shapes = {f"attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
    shapes |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            out.add_tensor(f"blk.{layer}.{name}.weight", drawn(*shape))
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{layer}.{name}.weight", ones)


if __name__ == "__main__":
    main(sys.argv[1])
