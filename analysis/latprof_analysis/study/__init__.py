"""Run folders of any size, and files of other tools -> what they say."""
