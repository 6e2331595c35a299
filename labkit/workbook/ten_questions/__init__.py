"""The report of the ten questions: each answered with the learner's own numbers and pictures.

`kept` reads what the notebooks left under `my/`, `questions` judges it, `page` writes one HTML
file (`python3 -m labkit report`), and `shown` has the commands of notebook 11.
"""
