import "./queues.css";

import { ItemsPage } from "./ItemsPage";
import { NewQueue } from "./NewQueue";
import { NotesPage } from "./NotesPage";
import { PayPage } from "./PayPage";
import { QueueReport } from "./QueueReport";
import { SettingsPage } from "./settings/SettingsPage";

const PAGES = { new: NewQueue, pay: PayPage, settings: SettingsPage, items: ItemsPage, notes: NotesPage, report: QueueReport };

/** The pages of those who run queues, in a file of their own: annotators do not load them. */
export default function CuratorPages({ page }: { page: keyof typeof PAGES }) {
  const Page = PAGES[page];
  return <Page />;
}
