import { t, textKey } from "../i18n";

/** What the server says in one fixed text, word for word. Messages with names or numbers in them stay English. */
const MESSAGES: ReadonlySet<string> = new Set([
  textKey("wrong name or password"),
  textKey("sign in first"),
  textKey("many people are signing in at this moment: try again"),
  textKey("that is not the password until now"),
  textKey("a password has 4 different characters or more"),
  textKey("an annotator's name is 1 to 100 printable characters"),
  textKey("changes are taken from this server's own page only"),
  textKey("this server is not called by that name: see --allowed-host"),
  textKey("this server runs without accounts: start it without --open first"),
  textKey("this server runs without accounts: start it without --open to manage them"),
  textKey("this server runs without accounts: there is no password to change"),
  textKey("the server failed: its log says where"),
  textKey("there is no such open invitation"),
  textKey("that identity signs in to another account"),
  textKey("the time for this item ran out, and somebody else has it: ask for the next one"),
  textKey("there is another vote of yours on this item; undo it first"),
  textKey("this vote was taken back; the item is to be voted on again"),
  textKey("that is not your last vote any more: look at it before you undo"),
  textKey("that is not an answer of yours that stands: look at your answers again"),
  textKey("that item is not open to you: a link opens what you have before you or have answered"),
  textKey("the queue is closed: its answers stay as they are"),
  textKey("others' votes are for adjudicators"),
  textKey("others' votes are shown after one's own"),
  textKey("a vote has a choice or a reason to skip"),
  textKey("a comment without text"),
  textKey("there is no such note in this queue"),
  textKey("no comparison is named: the queue would be empty"),
  textKey("the disk is full: free some space first"),
  textKey("the disk is full: nothing of the file was kept; free some space first"),
  textKey("the file is empty"),
  textKey("another piece of this file is on its way"),
  textKey("the piece did not arrive in time"),
  textKey("this upload is not known here any more: choose the file again"),
  textKey("there is no such file among the uploads"),
  textKey("what it would take has changed since: look at the estimate again"),
  textKey("the job has ended"),
  textKey("name the training data: a training set or a file"),
  textKey("is needed"),
  textKey("must be above 0"),
  textKey("must be at least 1"),
  textKey("there is no such served model"),
  textKey("name two different runs to compare"),
  textKey("there is no such rule any more"),
]);

/** A message of the server in the person's language, where it is known. */
export function inLanguage(message: string): string {
  return MESSAGES.has(message) ? t(message) : message;
}
