"""Import public encoders in Hugging Face's layout: weights and tokenizers.

json_settings.py   the values of a JSON file, with checks
settings.py        config.json of each model type -> ModelConfig; raises on unsupported values:
                   common_settings.py, and by family bert_settings.py, relative_settings.py and
                   rope_settings.py
names.py           the array names of a model type -> paths in our model
name_tables.py     the names of each type
array_layouts.py   arrays that some model types split differently
tokenizer.py       the tokenizer, from any of the files it may be in
files.py           reads config.json and the weights
importing.py       reads a whole folder
exporting.py       writes a folder, for BERT-A, ELECTRA with the positions of BERT-A, and RoPE
tokenizer_layout.py      writes an imported tokenizer
sentencepiece_layout.py  writes a SentencePiece tokenizer as tokenizer.json
sentence_layout.py       adds what sentence-transformers needs
"""
