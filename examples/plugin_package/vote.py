"""Vote on the first item of the queue `reasoned`."""

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.service import AnnotationService

with AnnotationService(Workspace.open("work")) as service:
    item = service.next("reasoned", "ann")
    assert item is not None
    try:
        service.cast(item.ticket, "ann", Submission(choice="first"))
    except BadInputError as error:
        print(error)
    print(service.cast(item.ticket, "ann", Submission(choice="first", rationale="it names the ticket")).answer)
