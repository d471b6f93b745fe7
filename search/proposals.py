"""What a policy proposes, and anybody may write one, made sure of: programs, each once, none measured."""

from __future__ import annotations

from ansor.errors import DefinitionError
from ansor.plugins import GO_ON, brief
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.wording import counted
from search.history import History
from search.policy import Proposal, SearchPolicy


def proposal_of(policy: SearchPolicy, answer: object) -> Proposal:
    """
    Take what a policy's `propose` returned.

    Raises
    ------
    DefinitionError
        If it is no `Proposal` of states.
    """
    asked = _asked(policy)
    if not isinstance(answer, Proposal):
        raise DefinitionError(
            f"{asked} returned {brief(answer)}; return ansor.Proposal((state, ...)), with no state when "
            f"nothing is left; {GO_ON}"
        )
    strange = next((state for state in answer.states if not isinstance(state, State)), None)
    if strange is not None:
        raise DefinitionError(
            f"{asked} returned a proposal that holds {brief(strange)}; its programs are ansor.State; {GO_ON}"
        )
    return answer


def checked(policy: SearchPolicy, answer: object, known: History) -> Proposal:
    """
    Take what a policy proposed without what is measured already; raises as `proposal_of`.

    Parameters
    ----------
    policy
        The policy, for messages.
    answer
        What its `propose` returned.
    known
        The measured programs; these are left out, and so is what comes again.
    """
    proposal = proposal_of(policy, answer)
    fresh = {key: state for state in proposal.states if (key := program_key(state)) not in known}
    left_out = len(proposal.states) - len(fresh)
    if not left_out:
        return proposal
    note = f"{_asked(policy)} gave {counted(left_out, 'program')} that are measured already, or came twice"
    return Proposal(tuple(fresh.values()), f"{proposal.note}; {note}" if proposal.note else note)


def _asked(policy: SearchPolicy) -> str:
    return f"{type(policy).__name__}.propose"
