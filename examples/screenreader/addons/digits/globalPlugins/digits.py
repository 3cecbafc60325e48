# An add-on in NVDA's style: written for the screen reader's own process, and not changed.
import re

import config
import globalPluginHandler
import ui
from logHandler import log
from scriptHandler import script
from speech.extensions import filter_speechSequence

if "digits" not in config.conf:
    config.conf["digits"] = {"longest": 3}


class GlobalPlugin(globalPluginHandler.GlobalPlugin):
    def __init__(self):
        super().__init__()
        self.spelled = 0
        filter_speechSequence.register(self.spell)
        log.info("numbers longer than %d digits are spelled", config.conf["digits"]["longest"])

    def terminate(self):
        filter_speechSequence.unregister(self.spell)

    def spell(self, speechSequence):
        longest = config.conf["digits"]["longest"]
        return [re.sub(r"\d+", lambda found: self.one(found[0], longest), text) for text in speechSequence]

    def one(self, number, longest):
        if len(number) <= longest:
            return number
        self.spelled += 1
        return " ".join(number)

    @script(gesture="kb:NVDA+shift+d", description="Says how many numbers were spelled")
    def script_howMany(self, gesture):
        ui.message(f"{self.spelled} numbers were spelled")
