"""Public encoders in Hugging Face's layout: their weights and tokenizers, in our model.

settings.py    config.json of each model type -> ModelConfig; odd values are refused by name
names.py       the names of each model type's arrays -> paths in our model
pieces.py      arrays that are cut in another way there
tokenizer.py   the tokenizer, from whichever files it has
files.py       reading the folder
importing.py   all of it together
exporting.py   the way back, for BERT-A
"""
