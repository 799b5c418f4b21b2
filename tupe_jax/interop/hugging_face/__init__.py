"""Import public encoders in Hugging Face's layout: weights and tokenizers.

settings.py        config.json of each model type -> ModelConfig; raises on unsupported values
names.py           the array names of each model type -> paths in our model
array_layouts.py   arrays that some model types split differently
tokenizer.py       the tokenizer, from any of the files it may be in
files.py           reads config.json and the weights
importing.py       reads a whole folder
exporting.py       writes a folder, for BERT-A and for ELECTRA with the positions of BERT-A
"""
