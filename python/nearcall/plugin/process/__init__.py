"""A plugin's process as its host sees it: started, measured, ended, started again."""
