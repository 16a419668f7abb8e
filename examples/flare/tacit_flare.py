"""NVIDIA FLARE: an executor that brings one study to a site's agent, a controller that gathers the answers.

They carry bytes and nothing else: policy, approval, ledger and noise are the agent's, which runs as a program
of its own (``tacit agent answer``, by ``tacit_answer.py`` of the folder beside this one). A site's operator
says which agent, by TACIT_AGENT_CONFIG in the client's environment; a job cannot. Neither part logs what an
agent says.
"""

import base64
import binascii
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from tacit_answer import answer

TASK, STUDY, ANSWER, STATE = "tacit_answer", "tacit_study", "tacit_answer", "tacit_state"


class AnswerStudy(Executor):
    """Answers a task that carries a study by what the site's agent signed.

    Args:
        timeout_s: how long to wait for a steward and the computation, in seconds.
    """

    def __init__(self, timeout_s: float = 600.0):
        super().__init__()
        self.timeout_s = timeout_s

    def execute(
        self, task_name: str, shareable: Shareable, _fl_ctx: FLContext, _abort_signal: Signal
    ) -> Shareable:
        """Return the agent's state and answer, in base64, or FLARE's return code of what was no such task."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            found = answer(shareable.get(STUDY, ""), self.timeout_s)
        except (binascii.Error, TypeError, ValueError):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = make_reply(ReturnCode.OK)
        reply[STATE], reply[ANSWER] = found["state"], found["answer"]
        return reply


class CarryStudy(Controller):
    """Sends a study to all sites of the job, and writes what each answers into a file of the site's name.

    Args:
        study_file: what ``tacit study envelope`` wrote, at the server.
        answers_folder: an existing folder of the server, for ``SITE.dsse`` of each site that has answered.
        timeout_s: how long to wait for all of them, in seconds.
    """

    def __init__(self, study_file: str, answers_folder: str, timeout_s: int = 1200):
        super().__init__()
        self.study_file, self.answers_folder, self.timeout_s = study_file, answers_folder, timeout_s

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is prepared."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Send the study once, and keep each answer as it comes."""
        study = base64.b64encode(Path(self.study_file).read_bytes()).decode()
        task = Task(TASK, Shareable({STUDY: study}), timeout=self.timeout_s, result_received_cb=self._keep)
        sites = fl_ctx.get_engine().get_clients()
        self.broadcast_and_wait(task, fl_ctx, min_responses=len(sites), abort_signal=abort_signal)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to stop."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Take no answer that comes too late: asked again, an agent answers with the same bytes."""

    def _keep(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        name, result = client_task.client.name, client_task.result
        state, answered = result.get(STATE, "failed"), result.get(ANSWER)
        self.log_info(fl_ctx, f"{name}: {state}")
        if answered is not None:
            Path(self.answers_folder, f"{name}.dsse").write_bytes(base64.b64decode(answered))
